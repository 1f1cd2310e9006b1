//! The linear addresses of a guest's instructions and operands (AMD APM volume 2, 4.5).

use mayfly_x86_decode::{Memory, Mode, Segment};

use crate::svm::vmcb::{self, Save};

const EFER_LONG: u64 = 1 << 10;
/// Of a code segment's attributes, as the control block has them: `L`, and `D`.
const IS_LONG: u16 = 1 << 9;
const IS_32: u16 = 1 << 10;
const CR0_PROTECTED: u64 = 1;
const FLAGS_VIRTUAL: u64 = 1 << 17;

/// How the guest reads instructions now.
pub const fn mode(save: &Save) -> Mode {
    if save.cr0 & CR0_PROTECTED == 0 || save.rflags & FLAGS_VIRTUAL != 0 {
        Mode::Bits16
    } else if save.efer & EFER_LONG != 0 && save.cs.attributes & IS_LONG != 0 {
        Mode::Bits64
    } else if save.cs.attributes & IS_32 != 0 {
        Mode::Bits32
    } else {
        Mode::Bits16
    }
}

/// Where the guest's next instruction is, which it reads in this mode.
pub const fn instruction(save: &Save, mode: Mode) -> u64 {
    match mode {
        Mode::Bits64 => save.rip,
        Mode::Bits16 | Mode::Bits32 => (save.cs.base.wrapping_add(save.rip)) & 0xffff_ffff,
    }
}

/// The instruction pointer behind an instruction of `length` bytes.
pub const fn behind(save: &Save, mode: Mode, length: u8) -> u64 {
    let next = save.rip.wrapping_add(length as u64);
    match mode {
        Mode::Bits64 => next,
        Mode::Bits32 => next & 0xffff_ffff,
        Mode::Bits16 => next & 0xffff,
    }
}

/// Where an operand is, of an instruction that is read in this mode.
pub fn operand(save: &Save, mode: Mode, memory: &Memory, registers: &[u64; 16], next: u64) -> u64 {
    let offset = memory.offset(|number| registers[usize::from(number & 15)], next);
    let segment: &vmcb::Segment = match memory.segment {
        Segment::Es => &save.es,
        Segment::Cs => &save.cs,
        Segment::Ss => &save.ss,
        Segment::Ds => &save.ds,
        Segment::Fs => &save.fs,
        Segment::Gs => &save.gs,
    };
    match mode {
        Mode::Bits64 if matches!(memory.segment, Segment::Fs | Segment::Gs) => {
            segment.base.wrapping_add(offset)
        }
        Mode::Bits64 => offset,
        Mode::Bits16 | Mode::Bits32 => segment.base.wrapping_add(offset) & 0xffff_ffff,
    }
}

const PAGE: u64 = 4096;

/// What of an operand an access may have been that the CPU has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its beginning.
    Beginning,
    /// What of it lies in its second page.
    SecondPage,
    /// Nothing.
    None,
}

/// What of an operand of so many bytes at `linear` lies where `address` does in its page.
pub const fn part(linear: u64, bytes: u64, address: u64) -> Part {
    let (begins, at) = (linear % PAGE, address % PAGE);
    if begins == at {
        Part::Beginning
    } else if at < (begins + bytes).saturating_sub(PAGE) {
        Part::SecondPage
    } else {
        Part::None
    }
}

#[cfg(test)]
mod tests {
    use mayfly_x86_decode::{Base, Width};

    use super::*;

    fn guest(cr0: u64, efer: u64, attributes: u16) -> Save {
        let mut save = Save::reset();
        (save.cr0, save.efer, save.rip) = (cr0, efer, 0xfffe);
        save.cs.attributes = attributes;
        save.cs.base = 0x10_0000;
        save
    }

    #[test]
    fn an_access_is_the_beginning_of_its_operand_or_lies_in_its_second_page() {
        for bytes in [1, 2, 4, 8] {
            for linear in 0x7_0000_0ff0_u64..0x7_0000_1010 {
                for address in (0xfee0_0000_u64..0xfee0_0010).chain(0xfee0_0ff0..0xfee0_1000) {
                    let is_in_second = (1..bytes)
                        .map(|after| linear + after)
                        .any(|at| at / PAGE != linear / PAGE && at % PAGE == address % PAGE);
                    let expected = match (linear % PAGE == address % PAGE, is_in_second) {
                        (true, _) => Part::Beginning,
                        (false, true) => Part::SecondPage,
                        (false, false) => Part::None,
                    };
                    assert_eq!(part(linear, bytes, address), expected, "{linear:#x} {address:#x}");
                }
            }
        }
        assert_eq!(part(0x5ffe, 4, 0x400_0000), Part::SecondPage);
        assert_eq!(part(u64::MAX, 8, 0x1000), Part::SecondPage);
    }

    #[test]
    fn the_code_segment_says_how_instructions_are_read() {
        assert_eq!(mode(&guest(0, 0, IS_32)), Mode::Bits16);
        assert_eq!(mode(&guest(1, 0, IS_32)), Mode::Bits32);
        assert_eq!(mode(&guest(1, 0, 0)), Mode::Bits16);
        assert_eq!(mode(&guest(1, EFER_LONG, IS_LONG)), Mode::Bits64);
        // Compatibility mode; and `L` means nothing out of long mode.
        assert_eq!(mode(&guest(1, EFER_LONG, IS_32)), Mode::Bits32);
        assert_eq!(mode(&guest(1, 0, IS_LONG)), Mode::Bits16);
        let mut save = guest(1, 0, IS_32);
        save.rflags = FLAGS_VIRTUAL;
        assert_eq!(mode(&save), Mode::Bits16);
    }

    #[test]
    fn an_instruction_is_counted_from_its_segment_but_in_64_bits() {
        let save = guest(1, 0, 0);
        let places = |mode| (instruction(&save, mode), behind(&save, mode, 3));
        assert_eq!(places(Mode::Bits64), (0xfffe, 0x1_0001));
        assert_eq!(places(Mode::Bits16), (0x10_fffe, 1));
        assert_eq!(places(Mode::Bits32), (0x10_fffe, 0x1_0001));
    }

    #[test]
    fn an_operand_is_counted_from_its_segment_but_in_64_bits_of_fs_and_gs_alone() {
        let mut registers = [0; 16];
        registers[3] = 0x1000;
        let memory = |segment| Memory {
            segment,
            base: Some(Base::Register(3)),
            index: None,
            displacement: -1,
            width: Width::Qword,
        };
        let mut save = guest(1, EFER_LONG, IS_LONG);
        (save.ds.base, save.gs.base) = (0x7000_0000, 0xffff_8000_0000_0000);
        let place = |mode, segment| operand(&save, mode, &memory(segment), &registers, 0);
        assert_eq!(place(Mode::Bits64, Segment::Ds), 0xfff);
        assert_eq!(place(Mode::Bits64, Segment::Gs), 0xffff_8000_0000_0fff);
        assert_eq!(place(Mode::Bits32, Segment::Ds), 0x7000_0fff);
    }
}
