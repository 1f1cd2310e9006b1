//! Software TLBs, and the walks that fill them.

mod rigour;
mod sizes;
mod tables;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_machine::tlb::{CpuTlb, InGuest};
use mayfly_machine::walk::{Cause, walk};
use mayfly_machine::{Arena, Hardware, Tlbs};
use mayfly_platform::address::{Gfn, Gpa, Pfn};
use mayfly_platform::tlb::{Scope, Span, Tlb, Vmid};
use mayfly_platform::{Host, Mmu, Op};
use mayfly_stage2::{Arm, Ept, Format, Leaf, Level, Npt, Permissions, Sv39x4, Sv48x4};

use mayfly_platform::testing::threads::Over;
use tables::Table;

const ALL: Permissions = Permissions::all();
const READ: Permissions = Permissions::READ;
const WRITE: Permissions = Permissions::WRITE;
const VMID: Vmid = Vmid(7);

fn tlbs() -> Arc<Tlbs> {
    Arc::new(Tlbs::new(Arc::new(Host::new())))
}

fn range(first: u64, end: u64) -> Scope {
    Scope::Range(Span::pages(Gfn::new(first)..Gfn::new(end)))
}

/// Reads through the TLB; panics if the table does not allow it.
fn read(guest: &mut InGuest<'_>, arena: &Arena, gfn: u64) -> (Pfn, Level) {
    let found = guest.translate::<Ept>(arena, Gfn::new(gfn), READ).unwrap();
    (found.pfn, found.level)
}

#[test]
fn a_walk_finds_pages_and_blocks_in_every_format() {
    fn check<F: Format>() {
        let arena = Arena::new(1 << 18).unwrap();
        let table = Table::<F>::new(&arena);
        // The last of the guest's addresses, the first, and some between.
        let last = (1 << (F::IPA_BITS - 12)) - 1;
        let gib = Level::GIB1.pages();
        table.map(Gfn::new(last), Level::PAGE, Leaf::new(Pfn::new(0x1234), ALL));
        table.map(Gfn::new(gib), Level::MIB2, Leaf::new(Pfn::new(0x4400), ALL));
        table.map(Gfn::new(0), Level::GIB1, Leaf::new(Pfn::new(5 * gib), ALL));
        for (gfn, level, first) in [
            (last, Level::PAGE, 0x1234),
            (gib + 511, Level::MIB2, 0x4400),
            (77, Level::GIB1, 5 * gib),
        ] {
            let found = walk::<F>(&arena, table.top, Gfn::new(gfn), READ).unwrap();
            assert_eq!((found.level, found.leaf.pfn), (level, Pfn::new(first)), "{}", F::NAME);
        }
        for (gfn, level) in [(last - 1, Level::PAGE), (gib + 512, Level::MIB2), (last + 1, F::TOP)]
        {
            let fault = walk::<F>(&arena, table.top, Gfn::new(gfn), READ).unwrap_err();
            assert_eq!((fault.level, fault.cause), (level, Cause::Absent), "{}", F::NAME);
        }
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
    check::<Ept>();
    check::<Npt>();
    check::<Sv39x4>();
    check::<Sv48x4>();
}

#[test]
fn a_walk_marks_what_is_used_and_written_where_hardware_does_and_faults_where_it_does_not() {
    fn check<F: Format>() {
        let arena = Arena::new(64).unwrap();
        let table = Table::<F>::new(&arena);
        let unused = Leaf { accessed: false, ..Leaf::new(Pfn::new(9), ALL) };
        table.map(Gfn::new(3), Level::PAGE, unused);
        let found = walk::<F>(&arena, table.top, Gfn::new(3), READ);
        assert_eq!(table.leaf(Gfn::new(3)).accessed, F::SETS_ACCESSED);
        if !F::SETS_ACCESSED {
            assert_eq!(found.unwrap_err().cause, Cause::Accessed);
            return;
        }
        assert!(found.unwrap().leaf.accessed && !table.leaf(Gfn::new(3)).dirty);
        assert!(walk::<F>(&arena, table.top, Gfn::new(3), WRITE).unwrap().leaf.dirty);
        assert_eq!(table.leaf(Gfn::new(3)).dirty, F::SETS_DIRTY);
    }
    check::<Arm<40>>();
    check::<Ept>();
    check::<Npt>();
    check::<Sv39x4>();
}

#[test]
fn what_the_leaf_does_not_allow_faults_until_it_does() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    let mut cpu = tlbs.cpu();
    let mut guest = cpu.enter_guest(table.top, VMID);
    table.map(Gfn::new(3), Level::PAGE, Leaf::new(Pfn::new(9), READ));
    read(&mut guest, &arena, 3);
    let fault = guest.translate::<Ept>(&arena, Gfn::new(3), WRITE).unwrap_err();
    assert_eq!(fault.cause, Cause::Permission);
    // More permissions need no invalidation.
    table.map(Gfn::new(3), Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    assert!(guest.translate::<Ept>(&arena, Gfn::new(3), WRITE).is_ok());
}

#[test]
fn a_store_by_a_translation_that_was_remembered_clean_marks_the_entry_dirty() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    table.map(Gfn::new(3), Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    let mut cpu = tlbs.cpu();
    let mut guest = cpu.enter_guest(table.top, VMID);
    read(&mut guest, &arena, 3);
    assert!(!table.leaf(Gfn::new(3)).dirty);
    guest.translate::<Ept>(&arena, Gfn::new(3), WRITE).unwrap();
    assert!(table.leaf(Gfn::new(3)).dirty);
    guest.translate::<Ept>(&arena, Gfn::new(3), WRITE).unwrap();
    drop(guest);
    assert_eq!((cpu.counts().hits, cpu.counts().walks), (1, 2));
}

#[test]
fn what_is_remembered_is_used_until_it_is_invalidated() {
    let (arena, tlbs) = (Arena::new(1 << 12).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    let mut cpu = tlbs.cpu();
    for (gfn, level, old, new) in [(5, Level::PAGE, 9, 10), (0x400, Level::MIB2, 0x200, 0x600)] {
        for scope in [range(gfn, gfn + 1), range(gfn, 1 << 36), Scope::All] {
            table.map(Gfn::new(gfn), level, Leaf::new(Pfn::new(old), ALL));
            let mut guest = cpu.enter_guest(table.top, VMID);
            assert_eq!(read(&mut guest, &arena, gfn), (Pfn::new(old), level));
            table.map(Gfn::new(gfn), level, Leaf::new(Pfn::new(new), ALL));
            // What concerns others.
            let _ = tlbs.issue(VMID, range(gfn + level.pages(), gfn + 9 * level.pages()));
            let _ = tlbs.issue(Vmid(VMID.0 + 1), Scope::All);
            let _ = tlbs.issue(Vmid(VMID.0 + 64), Scope::All);
            guest.poll();
            assert_eq!(read(&mut guest, &arena, gfn).0, Pfn::new(old), "remembered");
            let token = tlbs.issue(VMID, scope.clone());
            guest.poll();
            tlbs.complete(token);
            assert_eq!(read(&mut guest, &arena, gfn).0, Pfn::new(new), "forgotten by {scope:?}");
            drop(guest);
            let token = tlbs.issue(VMID, Scope::All);
            tlbs.complete(token);
        }
    }
}

#[test]
fn a_cpu_outside_the_guest_is_not_waited_for_and_forgets_before_it_uses_anything() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    table.map(Gfn::new(5), Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    let mut cpu = tlbs.cpu();
    read(&mut cpu.enter_guest(table.top, VMID), &arena, 5);
    table.map(Gfn::new(5), Level::PAGE, Leaf::new(Pfn::new(10), ALL));
    tlbs.complete(tlbs.issue(VMID, range(5, 6)));
    assert_eq!(tlbs.counts().waits, 0);
    assert_eq!(read(&mut cpu.enter_guest(table.top, VMID), &arena, 5).0, Pfn::new(10));
}

#[test]
fn only_cpus_that_may_hold_a_vmid_are_asked_to_forget_it() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    let (mut one, mut other) = (tlbs.cpu(), tlbs.cpu());
    drop(one.enter_guest(table.top, VMID));
    drop(other.enter_guest(table.top, Vmid(8)));
    let _ = tlbs.issue(VMID, Scope::All);
    assert_eq!(tlbs.counts().posts, 1);
    tlbs.invalidate_all_vmids();
    assert_eq!(tlbs.counts().posts, 3);
    // It forgot everything, and holds what it is entered under.
    drop(one.enter_guest(table.top, Vmid(9)));
    let _ = tlbs.issue(VMID, Scope::All);
    assert_eq!(tlbs.counts().posts, 3);
    let _ = tlbs.issue(Vmid(9), Scope::All);
    assert_eq!(tlbs.counts().posts, 4);
}

#[test]
fn more_requests_than_a_mailbox_holds_make_the_cpu_forget_everything() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    let mut cpu = tlbs.cpu();
    for (requests, everything) in [(256, 0), (257, 1), (1000, 2)] {
        table.map(Gfn::new(5), Level::PAGE, Leaf::new(Pfn::new(9), ALL));
        let mut guest = cpu.enter_guest(table.top, VMID);
        read(&mut guest, &arena, 5);
        table.map(Gfn::new(5), Level::PAGE, Leaf::new(Pfn::new(10), ALL));
        for request in 1..requests {
            let _ = tlbs.issue(VMID, range(1000 * request, 1000 * request + 1));
        }
        // The one that matters is the last.
        let _ = tlbs.issue(VMID, range(5, 6));
        guest.poll();
        assert_eq!(read(&mut guest, &arena, 5).0, Pfn::new(10));
        drop(guest);
        assert_eq!(cpu.counts().everything_forgotten, everything, "after {requests}");
        tlbs.complete(tlbs.issue(VMID, Scope::All));
    }
}

#[test]
fn counts_outlive_their_cpus() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    table.map(Gfn::new(5), Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    for _ in 0..3 {
        let mut cpu = tlbs.cpu();
        let mut guest = cpu.enter_guest(table.top, VMID);
        read(&mut guest, &arena, 5);
        read(&mut guest, &arena, 5);
        assert!(guest.translate::<Ept>(&arena, Gfn::new(6), READ).is_err());
    }
    let counts = tlbs.cpu_counts();
    assert_eq!((counts.entries, counts.hits, counts.walks, counts.fills), (3, 3, 6, 3));
    assert_eq!(tlbs.issue(VMID, Scope::All), mayfly_platform::tlb::TlbToken(1));
    assert_eq!((tlbs.counts().posts, tlbs.counts().vmids), (0, 1), "nobody is left to ask");
}

#[test]
fn what_a_cpu_did_is_counted_while_it_goes() {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&ends);
        let reader = scope.spawn(|| {
            let mut last = 0;
            while !ends.load(Ordering::Relaxed) {
                let entries = tlbs.cpu_counts().entries;
                assert!(entries >= last, "{entries} entries to the guest, and {last} before");
                last = entries;
            }
        });
        for _ in 0..10_000 {
            tlbs.cpu().enter_guest(table.top, VMID);
            if reader.is_finished() {
                break;
            }
        }
    });
}

#[test]
fn the_hardware_is_what_stage_2_asks_for_and_counts_what_is_charged() {
    let hardware: Arc<Hardware> = Arc::new(Hardware::new(64).unwrap());
    let mmu: Arc<dyn Mmu> = hardware.clone();
    let frame = mmu.allocate(1).unwrap();
    assert_eq!(hardware.arena().in_use(), 2);
    // SAFETY: given above, and nobody looks into it.
    unsafe { mmu.free(frame, 1) };
    mmu.charge(Op::TlbInvalidation);
    mmu.charge(Op::TlbInvalidation);
    mmu.complete(mmu.issue(VMID, Scope::All));
    assert_eq!(
        (hardware.charged(Op::TlbInvalidation), hardware.charged(Op::RootLoadBegin)),
        (2, 0)
    );
    assert_eq!((hardware.tlbs().counts().vmids, hardware.arena().in_use()), (1, 0));
}

/// What a frame holds that the guest must not see, nor change.
const POISON: u64 = 0xdead_dead_dead_dead;

/// A guest that reads its pages' numbers and writes to them, until told to stop. Counts how often it has read.
fn run(
    mut cpu: CpuTlb,
    arena: &Arena,
    table: &Table<'_, Ept>,
    pages: u64,
    (stop, reads): (&AtomicBool, &AtomicU64),
) {
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        let mut guest = cpu.enter_guest(table.top, VMID);
        for step in 0..500 {
            guest.poll();
            let gfn = Gfn::new((step * 7) % pages);
            // An absent page is one that is being changed: out, and in again.
            let Ok(found) = guest.translate::<Ept>(arena, gfn, READ | WRITE) else { break };
            let at = |offset| found.hpa(Gpa::new((gfn.get() << 12) + offset));
            // An instruction that takes its time.
            for _ in 0..100 {
                let seen = arena.word(at(0)).load(Ordering::Relaxed);
                assert_eq!(seen, gfn.get(), "{gfn:?} is read from a frame that was taken away");
                arena.word(at(8)).store(step, Ordering::Relaxed);
            }
            count += 1;
        }
        drop(guest);
        reads.fetch_add(count, Ordering::Relaxed);
        // More guests than processors get on faster this way.
        std::thread::yield_now();
    }
}

#[test]
fn no_cpu_reads_or_writes_a_frame_after_its_invalidation_is_complete() {
    const PAGES: u64 = 24;
    let (arena, tlbs) = (Arena::new(4096).unwrap(), tlbs());
    let table = Table::<Ept>::new(&arena);
    let fresh = |gfn: u64| {
        let frame = arena.allocate(0).unwrap();
        arena.word(frame.hpa().unwrap()).store(gfn, Ordering::Relaxed);
        table.map(Gfn::new(gfn), Level::PAGE, Leaf::new(frame, ALL));
        frame
    };
    let mut frames: Vec<_> = (0..PAGES).map(fresh).collect();
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let cpu = tlbs.cpu();
            let (arena, table, stop, reads) = (&arena, &table, &stop, &reads);
            scope.spawn(move || {
                // A guest that fails ends the others.
                let _over = Over(stop);
                run(cpu, arena, table, PAGES, (stop, reads));
            });
        }
        let _over = Over(&stop);
        let mut quarantine = VecDeque::new();
        for round in 0_u64.. {
            // On a busy host the guests may have been without processors.
            let is_enough = round >= 2000 && reads.load(Ordering::Relaxed) > 10_000;
            if is_enough || stop.load(Ordering::Relaxed) {
                break;
            }
            let gfns = (round % PAGES)..(round % PAGES + 1 + round % 3).min(PAGES);
            if round % 2 == 0 {
                gfns.clone().for_each(|gfn| table.unmap(Gfn::new(gfn), Level::PAGE));
            }
            let old: Vec<_> = gfns.clone().map(|gfn| frames[gfn as usize]).collect();
            if round % 2 == 1 {
                gfns.clone().for_each(|gfn| frames[gfn as usize] = fresh(gfn));
            }
            match round % 5 {
                0 => tlbs.complete(tlbs.issue(VMID, Scope::All)),
                1 => tlbs.invalidate_all_vmids(),
                2 => {
                    // Several, completed by the last one's token.
                    for gfn in gfns.clone() {
                        let _ = tlbs.issue(VMID, range(gfn, gfn + 1));
                    }
                    tlbs.complete(tlbs.issue(VMID, range(gfns.start, gfns.end)));
                }
                _ => tlbs.complete(tlbs.issue(VMID, range(gfns.start, gfns.end))),
            }
            for frame in old {
                arena.words(frame).for_each(|word| word.store(POISON, Ordering::Relaxed));
                quarantine.push_back(frame);
            }
            if round % 2 == 0 {
                gfns.clone().for_each(|gfn| frames[gfn as usize] = fresh(gfn));
            }
            while quarantine.len() > 64 {
                let frame = quarantine.pop_front().unwrap();
                let is_untouched =
                    arena.words(frame).all(|word| word.load(Ordering::Relaxed) == POISON);
                assert!(is_untouched, "a frame that was taken away has been written");
                arena.free(frame, 0);
            }
        }
    });
    let counts = tlbs.counts();
    assert!(counts.waits > 0 && counts.waits >= counts.sleeps, "{counts:?}");
    assert!(tlbs.cpu_counts().hits > 1000, "{:?}", tlbs.cpu_counts());
}

/// As where a roll-over has given the VMID of a root that goes to the one that a guest is on, since the CPU was looked at.
#[test]
fn a_guest_comes_out_whose_register_is_to_name_its_vmid_no_more() {
    let arena = Arena::new(1 << 10).unwrap();
    let table = Table::<Ept>::new(&arena);
    table.map(Gfn::new(5), Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    let tlbs = tlbs();
    let mut cpu = tlbs.cpu();
    let number = cpu.number();
    let mut guest = cpu.enter_guest(table.top, VMID);
    tlbs.vacate(number, Vmid(8));
    assert!(!guest.is_interrupted(), "it is under another");
    tlbs.vacate(number, VMID);
    assert!(guest.is_interrupted());
    // Until it is out it goes on, since its root is there.
    assert_eq!(read(&mut guest, &arena, 5).0, Pfn::new(9));
    drop(guest);
    assert_eq!(cpu.named(), None);
    cpu.take_interrupt();
    let guest = cpu.enter_guest(table.top, VMID);
    assert!(!guest.is_interrupted());
    drop(guest);
    assert_eq!(cpu.named(), Some((table.top, VMID)));
}
