//! The PL011 by its register map, and against a naive model.

use std::collections::VecDeque;

use mayfly_devices::pl011::Pl011;
use proptest::prelude::*;

const DR: u64 = 0x00;
const RSR: u64 = 0x04;
const FR: u64 = 0x18;
const LCR_H: u64 = 0x2c;
const CR: u64 = 0x30;
const IFLS: u64 = 0x34;
const IMSC: u64 = 0x38;
const RIS: u64 = 0x3c;
const MIS: u64 = 0x40;
const ICR: u64 = 0x44;

const RX: u32 = 1 << 4;
const TX: u32 = 1 << 5;
const RT: u32 = 1 << 6;
const FEN: u32 = 1 << 4;

/// As Linux's driver leaves it.
fn open() -> Pl011 {
    let mut uart = Pl011::new();
    uart.write(LCR_H, 0x70);
    uart.write(IFLS, 0x12);
    uart.write(IMSC, RX | RT);
    uart
}

#[test]
fn linux_recognises_a_pl011_of_revision_3_by_its_identification() {
    let mut uart = Pl011::new();
    let words: Vec<u32> = (0xfe0..=0xffc).step_by(4).map(|offset| uart.read(offset)).collect();
    let fold = |words: &[u32]| words.iter().rev().fold(0, |all, byte| all << 8 | byte);
    assert_eq!(fold(&words[..4]) & 0x000f_ffff, 0x0004_1011, "designer and part");
    assert_eq!(fold(&words[..4]) >> 20 & 0xf, 3, "revision: 32 entries in a FIFO");
    assert_eq!(fold(&words[4..]), 0xb105_f00d);
}

#[test]
fn a_byte_that_is_written_leaves_at_once_and_asks_for_the_next() {
    let mut uart = open();
    assert_eq!(uart.write(DR, 0x1_0041), Some(b'A'));
    assert_eq!(uart.read(FR) & 0xb8, 0x90, "nothing waits, nothing is under way");
    assert_eq!(uart.read(RIS), TX);
    assert!(!uart.interrupt(), "masked");
    uart.write(IMSC, TX);
    assert!(uart.interrupt());
    assert_eq!(uart.read(MIS), TX);
    uart.write(ICR, TX);
    assert!(!uart.interrupt());
}

#[test]
fn a_byte_below_the_trigger_is_told_by_the_time_out() {
    let mut uart = open();
    assert_eq!(uart.receive(b"a"), 1);
    assert_eq!(uart.read(RIS), RT);
    assert!(uart.interrupt());
    assert_eq!(uart.read(DR), u32::from(b'a'));
    assert!(!uart.interrupt(), "nothing is left");
    assert_eq!(uart.read(FR) & 0x10, 0x10);
}

#[test]
fn the_receive_interrupt_stays_while_the_fifo_is_at_its_trigger() {
    let mut uart = open();
    assert_eq!(uart.receive(&[7; 17]), 17);
    assert_eq!(uart.read(MIS), RX | RT);
    uart.read(DR);
    assert_eq!(uart.read(RIS) & RX, RX, "16 of 32 is half");
    uart.read(DR);
    assert_eq!(uart.read(RIS) & RX, 0);
}

#[test]
fn what_has_no_room_is_left_to_the_caller() {
    let mut uart = open();
    assert_eq!(uart.receive(&[1; 40]), 32);
    assert_eq!(uart.read(FR) & 0x40, 0x40, "full");
    assert_eq!(uart.receive(&[2]), 0);
    uart.read(DR);
    assert_eq!(uart.receive(&[3, 4]), 1);
    assert_eq!(uart.read(RSR), 0, "nothing was lost");
}

#[test]
fn with_the_fifos_off_there_is_one_entry_and_turning_them_flushes() {
    let mut uart = open();
    assert_eq!(uart.receive(b"abc"), 3);
    uart.write(LCR_H, 0x60);
    assert_eq!(uart.read(FR) & 0x10, 0x10);
    assert!(!uart.interrupt());
    assert_eq!(uart.receive(b"xy"), 1);
    assert_eq!(uart.read(RIS) & RX, RX);
}

#[test]
fn a_receiver_that_is_off_takes_nothing_and_misses_nothing() {
    for control in [0x000, 0x101, 0x200] {
        let mut uart = open();
        uart.write(CR, control);
        assert_eq!(uart.receive(b"a"), 0);
        assert!(!uart.receive_break());
        uart.write(CR, 0x301);
        assert_eq!(uart.receive(b"a"), 1);
    }
}

#[test]
fn a_transmitter_that_is_off_sends_nothing() {
    for control in [0x000, 0x201, 0x100] {
        let mut uart = open();
        uart.write(CR, control);
        assert_eq!(uart.write(DR, 65), None);
    }
}

#[test]
fn a_break_comes_as_an_entry_with_its_mark_and_an_interrupt() {
    let mut uart = open();
    assert!(uart.receive_break());
    assert_eq!(uart.read(RIS) & 0x200, 0x200);
    assert_eq!(uart.read(DR), 0x400);
    assert_eq!(uart.read(RSR), 0x4);
    uart.write(RSR, 0);
    assert_eq!(uart.read(RSR), 0);
}

#[test]
fn what_is_looped_back_past_the_end_of_the_fifo_is_told_as_an_overrun() {
    let mut uart = open();
    uart.write(CR, 0x381);
    for byte in 0..33 {
        assert_eq!(uart.write(DR, byte), None, "nothing leaves");
    }
    assert_eq!(uart.read(RIS) & 0x400, 0x400);
    assert_eq!(uart.read(RSR) & 0x8, 0x8);
    assert_eq!(uart.read(DR), 0);
    uart.write(DR, 0x63);
    let last = (0..32).map(|_| uart.read(DR)).last();
    assert_eq!(last, Some(0x863), "the entry after the loss has the mark");
}

#[test]
fn every_register_keeps_the_bits_it_has_and_no_others() {
    let writable = [
        (0x20, 0xff),
        (0x24, 0xffff),
        (0x28, 0x3f),
        (LCR_H, 0xff),
        (CR, 0xff87),
        (IFLS, 0x3f),
        (IMSC, 0x7ff),
        (0x48, 0x7),
    ];
    let mut uart = Pl011::new();
    for (offset, bits) in writable {
        uart.write(offset, u32::MAX);
        assert_eq!(uart.read(offset), bits, "{offset:#x}");
        uart.write(offset, 0);
        assert_eq!(uart.read(offset), 0, "{offset:#x}");
    }
    let known = [DR, RSR, FR, RIS, MIS, ICR];
    for offset in 0..0x1100 {
        if writable.iter().any(|(known, _)| *known == offset) || known.contains(&offset) {
            continue;
        }
        let before = uart.read(offset);
        assert!(before == 0 || (0xfe0..0x1000).contains(&offset), "{offset:#x}");
        assert_eq!(uart.write(offset, u32::MAX), None);
        assert_eq!(uart.read(offset), before, "{offset:#x}");
    }
}

/// What a driver or a terminal does.
#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    Write(u64, u32),
    Receive(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![8 => (0_u64..0x14).prop_map(|index| index * 4), 1 => any::<u64>()];
    prop_oneof![
        3 => prop_oneof![Just(DR), offset.clone()].prop_map(Step::Read),
        2 => (offset, any::<u32>()).prop_map(|(offset, value)| Step::Write(offset, value)),
        2 => (any::<u32>()).prop_map(|value| Step::Write(IMSC, value)),
        2 => Just(Step::Write(CR, 0x301)),
        3 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Receive),
    ]
}

proptest! {
    #[test]
    fn bytes_come_out_in_order_and_the_line_says_what_is_unmasked(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let mut uart = Pl011::new();
        let (mut model, mut fifos) = (VecDeque::new(), false);
        for step in steps {
            match step {
                Step::Read(offset) => {
                    let (peeked, changes) = (uart.peek(offset), !uart.reads_change_nothing());
                    let (raw, value) = (uart.peek(RIS), uart.read(offset));
                    prop_assert_eq!(value, peeked);
                    if offset == DR {
                        prop_assert_eq!(value & 0xff, u32::from(model.pop_front().unwrap_or(0_u8)));
                    }
                    prop_assert!(changes || uart.peek(RIS) == raw);
                }
                // Loop-back has a test of its own.
                Step::Write(CR, value) => { uart.write(CR, value & !0x80); }
                Step::Write(offset, value) => {
                    uart.write(offset, value);
                    if offset == LCR_H && (value & FEN != 0) != fifos {
                        fifos = !fifos;
                        model.clear();
                    }
                }
                Step::Receive(bytes) => {
                    let on = uart.peek(CR) & 0x201 == 0x201;
                    let depth = if fifos { 32 } else { 1 };
                    let room = if on { depth - model.len() } else { 0 };
                    let taken = uart.receive(&bytes);
                    prop_assert_eq!(taken, room.min(bytes.len()));
                    model.extend(&bytes[..taken]);
                }
            }
            prop_assert_eq!(uart.reads_change_nothing(), model.is_empty());
            prop_assert_eq!(uart.peek(FR) & 0x10 != 0, model.is_empty());
            prop_assert_eq!(uart.interrupt(), uart.peek(MIS) != 0);
            prop_assert_eq!(uart.peek(MIS), uart.peek(RIS) & uart.peek(IMSC));
        }
    }
}
