//! What comes in the middle of what the thread of the ITS does: LPIs that are turned off, vCPUs that have an LPI, and panics
//! of the embedder's.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mayfly_vgic::{Frame, PART, Read, Served};

use crate::guest::{Guest, PENDING_TABLE};

/// Two vCPUs that take LPIs, and event 3 of device 0 is LPI 5, of collection 0, which is vCPU 0.
fn guest() -> Guest {
    let mut guest = Guest::new(2, 64, 2, 3, 4);
    guest.properties(5, 0xa1);
    for vcpu in 0..2 {
        guest.pending_table(vcpu, 0, true);
        guest.turn(vcpu, true);
    }
    let first: [[u64; 4]; 4] = [
        [9, 0, 1 << 63, 0],
        [9, 0, 1 << 63 | 1 << 16 | 1, 0],
        [8, 2, 1 << 63, 0],
        [10, 8197 << 32 | 3, 0, 0],
    ];
    for words in first {
        guest.command(words);
    }
    guest
}

fn table_of(guest: &Guest, vcpu: u64) -> u64 {
    u64::from_le_bytes(guest.memory.get(PENDING_TABLE + vcpu * 0x1_0000 + 1024))
}

#[test]
fn a_table_that_was_not_read_when_lpis_are_turned_off_keeps_what_is_in_it() {
    for is_saved in [false, true] {
        let mut guest = Guest::new(1, 64, 2, 3, 4);
        guest.properties(5, 0xa1);
        guest.pending_table(0, 1 << 5, false);
        guest.write(Frame::Redistributors, 0, 4, 1);
        guest.write(Frame::Redistributors, 0, 4, 0);
        if is_saved {
            guest.save_and_load();
        }
        guest.finish();
        assert_eq!(guest.read(Frame::Redistributors, 0, 4), Read::Value(2), "it is off");
        assert_eq!(table_of(&guest, 0), 1 << 5);
        guest.turn(0, true);
        assert!(guest.is_pending(0));
    }
}

/// Of a table that is zero as the guest says, what is in memory does not count.
#[test]
fn a_table_that_is_zero_has_what_came_before_lpis_were_turned_off() {
    let mut guest = guest();
    guest.turn(0, false);
    guest.pending_table(0, u64::MAX, true);
    guest.write(Frame::Redistributors, 0, 4, 1);
    guest.gic.send_msi(0, 3).unwrap();
    guest.write(Frame::Redistributors, 0, 4, 0);
    guest.finish();
    assert_eq!(table_of(&guest, 0), 1 << 5);
}

#[test]
fn an_lpi_that_was_pending_is_written_though_lpis_are_turned_off_while_others_move() {
    let mut guest = guest();
    guest.command([9, 0, 1 << 63 | 1 << 16, 0]);
    guest.command([3, 3, 0, 0]);
    // A MOVALL from vCPU 0 to vCPU 1, which has it already; the SYNC is for the pause between both.
    guest.queue([5, 0, 0, 0]);
    guest.queue([0xe, 0, 0, 1 << 16]);
    guest.post();
    let gic = &guest.gic;
    let _ = gic.serve_its(&guest.memory, &mut || {
        gic.write(Frame::Redistributors, 0x2_0000, 4, 0);
    });
    guest.finish();
    assert_eq!(table_of(&guest, 1), 1 << 5);
    guest.turn(1, true);
    assert!(guest.is_pending(1));
}

/// MOVI, MOVALL, and an event that comes after its collection was mapped to another vCPU.
#[test]
fn a_sync_after_an_lpi_was_moved_waits_for_the_vcpu_that_has_it() {
    let moves: [&[[u64; 4]]; 3] =
        [&[[1, 3, 1, 0]], &[[0xe, 0, 0, 1 << 16]], &[[9, 0, 1 << 63 | 1 << 16, 0], [3, 3, 0, 0]]];
    for commands in moves {
        let mut guest = guest();
        guest.enter(0);
        guest.command([3, 3, 0, 0]);
        guest.sync();
        assert_eq!(guest.given(0).len(), 1);
        for words in commands {
            guest.queue(*words);
        }
        guest.queue([5, 0, 0, 0]);
        guest.post();
        for _ in 0..3 {
            assert_eq!(guest.serve(), Served::Waits, "{commands:x?}");
            assert_eq!(guest.unread(), 32, "the SYNC");
        }
        assert!(guest.gic.is_stale(0), "it is told to come out");
        assert_eq!(guest.read(Frame::Redistributors, 0, 4), Read::Value(1 | 2 | 8));
        guest.leave(0);
        assert_eq!(guest.serve(), Served::Nothing);
        assert_eq!(guest.read(Frame::Redistributors, 0, 4), Read::Value(1 | 2));
        assert!(guest.is_pending(1) && !guest.is_pending(0));
    }
}

#[test]
fn a_sync_that_looks_at_many_lpis_pauses_after_each_part_of_them() {
    let mut guest = guest();
    guest.enter(0);
    guest.command([3, 3, 0, 0]);
    guest.sync();
    // A CLEAR.
    guest.queue([4, 3, 0, 0]);
    guest.queue([5, 0, 0, 0]);
    guest.post();
    let mut pauses = 0;
    assert_eq!(guest.gic.serve_its(&guest.memory, &mut || pauses += 1), Served::Waits);
    assert_eq!(pauses, 1 + 64 / PART, "one after the CLEAR");
}

#[test]
fn work_that_ends_in_a_panic_is_noted_and_done_later() {
    let mut guest = guest();
    guest.queue([3, 3, 0, 0]);
    guest.queue([5, 0, 0, 0]);
    guest.post();
    let panics = || {
        guest.gic.serve_its(&guest.memory, &mut || resume_unwind(Box::new("a pause")));
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(guest.gic.has_its_work());
    guest.finish();
    assert_eq!(guest.unread(), 0);
    assert!(guest.is_pending(0));
}
