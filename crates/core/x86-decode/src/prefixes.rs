//! What stands before the opcode (AMD APM volume 3, 1.2; Intel SDM volume 2, 2.1.1 and 2.2.1).

use crate::bytes::Bytes;
use crate::operand::{Register, Segment, Width};
use crate::{Mode, Undecoded};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefixes {
    mode: Mode,
    pub(crate) segment: Option<Segment>,
    pub(crate) operand: bool,
    address: bool,
    pub(crate) lock: bool,
    /// 0xf2 or 0xf3: the last of them.
    pub(crate) repeat: Option<u8>,
    /// The lower four bits of a REX prefix.
    rex: Option<u8>,
}

impl Prefixes {
    /// Reads all prefixes, and the opcode's first byte.
    pub(crate) fn read(mode: Mode, bytes: &mut Bytes<'_>) -> Result<(Self, u8), Undecoded> {
        let mut prefixes = Self {
            mode,
            segment: None,
            operand: false,
            address: false,
            lock: false,
            repeat: None,
            rex: None,
        };
        loop {
            let byte = bytes.next()?;
            match byte {
                0x26 => prefixes.set_segment(Segment::Es),
                0x2e => prefixes.set_segment(Segment::Cs),
                0x36 => prefixes.set_segment(Segment::Ss),
                0x3e => prefixes.set_segment(Segment::Ds),
                0x64 => prefixes.segment = Some(Segment::Fs),
                0x65 => prefixes.segment = Some(Segment::Gs),
                0x66 => prefixes.operand = true,
                0x67 => prefixes.address = true,
                0xf0 => prefixes.lock = true,
                0xf2 | 0xf3 => prefixes.repeat = Some(byte),
                0x40..=0x4f if mode == Mode::Bits64 => {
                    prefixes.rex = Some(byte & 0xf);
                    continue;
                }
                _ => return Ok((prefixes, byte)),
            }
            // A REX prefix that does not stand right before the opcode means nothing.
            prefixes.rex = None;
        }
    }

    /// In 64 bits these four are no segments, and leave FS or GS as it is.
    fn set_segment(&mut self, segment: Segment) {
        let is_kept = matches!(self.segment, Some(Segment::Fs | Segment::Gs));
        if self.mode != Mode::Bits64 || !is_kept {
            self.segment = Some(segment);
        }
    }

    pub(crate) const fn mode(self) -> Mode {
        self.mode
    }

    pub(crate) const fn has_rex(self) -> bool {
        self.rex.is_some()
    }

    const fn rex_bit(self, bit: u32) -> bool {
        match self.rex {
            Some(rex) => rex >> bit & 1 != 0,
            None => false,
        }
    }

    pub(crate) const fn is_wide(self) -> bool {
        self.rex_bit(3)
    }

    /// A number of three bits, which a bit of REX makes one of four: 2 is of `reg`, 1 of the index, and 0 of
    /// `r/m`, the base, and the opcode.
    pub(crate) const fn extended(self, number: u8, bit: u32) -> u8 {
        number & 7 | if self.rex_bit(bit) { 8 } else { 0 }
    }

    /// The width of an operand that is no byte.
    pub(crate) const fn operand_width(self) -> Width {
        match (self.is_wide(), self.mode, self.operand) {
            (true, _, _) => Width::Qword,
            (_, Mode::Bits16, false) | (_, Mode::Bits32 | Mode::Bits64, true) => Width::Word,
            _ => Width::Dword,
        }
    }

    /// The width of an operand by bit 0 of an opcode: a byte if it is clear.
    pub(crate) const fn width(self, opcode: u8) -> Width {
        if opcode & 1 == 0 { Width::Byte } else { self.operand_width() }
    }

    /// The same, of what goes to ports, which have 32 bits at most.
    pub(crate) const fn port_width(self, opcode: u8) -> Width {
        match self.width(opcode) {
            Width::Qword => Width::Dword,
            width => width,
        }
    }

    pub(crate) const fn address_width(self) -> Width {
        match (self.mode, self.address) {
            (Mode::Bits64, false) => Width::Qword,
            (Mode::Bits64 | Mode::Bits16, true) | (Mode::Bits32, false) => Width::Dword,
            (Mode::Bits32, true) | (Mode::Bits16, false) => Width::Word,
        }
    }

    /// A register of a number. Without REX, 4 to 7 are the second bytes of the first four, if a byte is meant.
    pub(crate) const fn register(self, number: u8, width: Width) -> Register {
        match width {
            Width::Byte if number >= 4 && number < 8 && !self.has_rex() => {
                Register { number: number - 4, second_byte: true }
            }
            _ => Register { number, second_byte: false },
        }
    }
}
