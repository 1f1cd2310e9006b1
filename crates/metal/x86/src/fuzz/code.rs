//! Made-up code.

use mayfly_guests::wild::random::Random;

/// Bytes that code is written to. All behind it are RET.
pub(super) const BYTES: usize = 256;
const RET: u8 = 0xc3;

/// What stands before instructions: sizes, LOCK, REP, segments, REX.
const PREFIXES: [u8; 12] = [0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e, 0x64, 0x65, 0x48, 0x49, 0x44, 0x41];

/// Instructions that are privileged, or raise something, as their first bytes.
const SPECIAL: [&[u8]; 41] = [
    &[0x0f, 0x20],
    &[0x0f, 0x21],
    &[0x0f, 0x23],
    &[0x0f, 0x30],
    &[0x0f, 0x32],
    &[0x0f, 0x33],
    &[0x0f, 0x31],
    &[0x0f, 0xa2],
    &[0x0f, 0x06],
    &[0x0f, 0x08],
    &[0x0f, 0x09],
    &[0x0f, 0x0b],
    &[0x0f, 0x05],
    &[0x0f, 0x07],
    &[0x0f, 0x34],
    &[0x0f, 0x35],
    &[0x0f, 0xc7],
    &[0x0f, 0xae],
    &[0x0f, 0xaa],
    &[0x0f, 0x01, 0xd8],
    &[0x0f, 0x01, 0xdf],
    &[0x0f, 0x01, 0xd0],
    &[0x0f, 0x01, 0xd9],
    &[0x0f, 0x01, 0xf8],
    &[0x0f, 0x01, 0xf9],
    &[0x0f, 0x01, 0xc8],
    &[0x0f, 0x01, 0xca],
    &[0xf4],
    &[0xfa],
    &[0xfb],
    &[0xf1],
    &[0xcc],
    &[0xcd],
    &[0xcf],
    &[0xcb],
    &[0x9d],
    &[0x8e],
    &[0xec],
    &[0xef],
    &[0x6e],
    &[0x9b],
];

/// Those by which a vCPU mostly gets lost: tables of descriptors, tasks, and control registers.
const LOSING: [&[u8]; 3] = [&[0x0f, 0x00], &[0x0f, 0x01], &[0x0f, 0x22]];

/// Opcodes of one byte that take an address: moves, arithmetic, shifts, tests, exchanges, pushes, x87.
const OPERANDS: [u8; 48] = [
    0x00, 0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x0b, 0x20, 0x21, 0x22, 0x23, 0x28, 0x29, 0x30, 0x31,
    0x38, 0x39, 0x3a, 0x3b, 0x63, 0x69, 0x6b, 0x80, 0x81, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89,
    0x8a, 0x8b, 0x8b, 0x89, 0x8f, 0xa4, 0xa5, 0xa6, 0xaa, 0xab, 0xac, 0xc6, 0xc7, 0xd3, 0xf7, 0xff,
];
/// Of two bytes.
const OPERANDS_0F: [u8; 24] = [
    0xb6, 0xb7, 0xbe, 0xbf, 0xb0, 0xb1, 0xc0, 0xc1, 0xc7, 0xa3, 0xab, 0xb3, 0xba, 0xaf, 0x40, 0x94,
    0x10, 0x11, 0x29, 0x6f, 0x7f, 0xc3, 0x18, 0x0d,
];

/// Where code is written, from the first byte on.
pub(super) struct Code<'a> {
    bytes: &'a mut [u8; BYTES],
    at: usize,
}

impl<'a> Code<'a> {
    pub(super) fn new(bytes: &'a mut [u8; BYTES]) -> Self {
        bytes.fill(RET);
        Self { bytes, at: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.at) {
                *place = *byte;
                self.at += 1;
            }
        }
    }

    fn any(&mut self, random: &mut Random, count: u64) {
        for _ in 0..count {
            self.put(&[random.next() as u8]);
        }
    }

    fn prefixes(&mut self, random: &mut Random) {
        while random.once_in(3) {
            let prefix = random.one_of(&PREFIXES);
            self.put(&[prefix]);
        }
    }

    /// An instruction of which it is not known what it is.
    pub(super) fn wild(&mut self, random: &mut Random) {
        self.prefixes(random);
        match random.below(3) {
            0 => {
                let special = if random.once_in(64) {
                    random.one_of(&LOSING)
                } else {
                    random.one_of(&SPECIAL)
                };
                self.put(special);
                self.any(random, 1);
            }
            1 => self.any(random, 4),
            _ => self.transfer(random),
        }
    }

    /// One that takes an address, mostly that in RDX.
    pub(super) fn transfer(&mut self, random: &mut Random) {
        self.prefixes(random);
        if random.once_in(3) {
            let opcode =
                if random.once_in(8) { random.next() as u8 } else { random.one_of(&OPERANDS_0F) };
            self.put(&[0x0f, opcode]);
        } else {
            let opcode = random.one_of(&OPERANDS);
            self.put(&[opcode]);
        }
        let register = (random.next() as u8 & 7) << 3;
        match random.below(4) {
            // [RDX], [RDX + byte], [RDX + RCX], and any.
            0 => self.put(&[0x42 | register, random.next() as u8 & 0x3c]),
            1 if random.once_in(2) => self.put(&[random.next() as u8]),
            _ => self.put(&[0x02 | register]),
        }
        if random.once_in(4) {
            self.any(random, 4);
        }
    }
}
