//! What is given back in each round, and what memory reads as then.

use core::ops::Range;

use crate::balloon::{Balloon, DEFLATE, INFLATE};
use crate::machine::{is_fork, load, power_off, say, store, typed};

/// Where the memory begins that is given back: above this program, its tree and its rings.
const FIRST: u64 = 0x4080_0000;
const MEMORY: u64 = 0x4000_0000;
const PAGE: u64 = 4096;
/// The most pages.
const MOST: usize = 256 << 8;
const ROUNDS: u64 = 4;
/// What memory is filled with for forks.
const FROZEN: u64 = 0xf02e;

/// The memory that is given back.
struct Memory {
    pages: Range<u64>,
    /// A bit for each page that was given back since it was written.
    given: [u64; MOST / 64],
    /// What a page reads as that was given back: what it had in that round, or zeroes.
    expected: Option<u64>,
    count: u64,
}

/// What a page has in a round, in its first and its last word.
const fn pattern(round: u64, page: u64) -> u64 {
    (round << 32 | page).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

impl Memory {
    fn place(&self, page: u64) -> Option<(usize, u64)> {
        let at = self.pages.contains(&page).then(|| page - self.pages.start)?;
        Some(((at / 64) as usize, 1 << (at % 64)))
    }

    /// A page is given back. Not those that are not there.
    fn gives(&mut self, page: u64) {
        if let Some((word, bit)) = self.place(page) {
            self.count += u64::from(self.given[word] & bit == 0);
            self.given[word] |= bit;
        }
    }

    fn fill(&mut self, round: u64) {
        for page in self.pages.clone() {
            store(page * PAGE, pattern(round, page));
            store(page * PAGE + PAGE - 8, pattern(round, page));
        }
        self.given.fill(0);
    }

    fn check(&self, round: u64) {
        for page in self.pages.clone() {
            let is_given = self.place(page).is_some_and(|(word, bit)| self.given[word] & bit != 0);
            let read_as = if is_given { self.expected } else { Some(round) };
            let expected = read_as.map_or(0, |round| pattern(round, page));
            for at in [page * PAGE, page * PAGE + PAGE - 8] {
                let found: u64 = load(at);
                assert!(
                    found == expected,
                    "{found:#x} at {at:#x}, not {expected:#x}, in round {round}; given back: {is_given}"
                );
            }
        }
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}

/// Some pieces, each of a few pages, and not of whole ones; or of some blocks of 2 MiB.
fn report(random: &mut Random, balloon: &mut Balloon, memory: &mut Memory) {
    let mut pieces = [(0, 0); 32];
    let bytes = (memory.pages.end + 2 - memory.pages.start) * PAGE;
    let is_large = random.below(3) == 0;
    for piece in &mut pieces {
        let (start, length) = (random.below(bytes), 1 + random.below(40 * PAGE));
        *piece = if is_large { (start & !0x1f_ffff, 0x20_0000) } else { (start & !0xf, length) };
        piece.0 += FIRST;
        let whole = piece.0.div_ceil(PAGE)..(piece.0 + piece.1) / PAGE;
        whole.for_each(|page| memory.gives(page));
    }
    balloon.report(pieces.into_iter());
}

/// Some pages, now and then the same twice, or such as there are not.
fn inflate(random: &mut Random, balloon: &mut Balloon, memory: &mut Memory) {
    let mut list = [0; 256];
    let count = memory.pages.end - memory.pages.start;
    let (mut page, follows) = (0, random.below(2) == 0);
    for each in &mut list {
        page = if follows && random.below(64) != 0 { page + 1 } else { random.below(count) };
        *each = match random.below(64) {
            0 => random.below(1 << 32) as u32,
            _ => (memory.pages.start + page) as u32,
        };
        memory.gives(u64::from(*each));
    }
    balloon.name(INFLATE, list.into_iter());
    if random.below(2) == 0 {
        balloon.name(DEFLATE, list.into_iter());
    }
}

pub(crate) extern "C" fn main(tree: u64) -> ! {
    let Some(mib) = asked(tree) else { panic!("nothing is asked") };
    // The last two pages of memory are not this guest's to give back.
    let pages = FIRST / PAGE..(MEMORY + (mib << 20)) / PAGE - 2;
    assert!((pages.end - pages.start) as usize <= MOST, "too much is asked");
    let mut memory = Memory { pages, given: [0; MOST / 64], expected: None, count: 0 };
    let Some(mut balloon) = Balloon::begin() else { panic!("there is no balloon") };
    let mut random = Random(0x1234_5678_9abc_def1);
    loop {
        for round in 0..ROUNDS {
            memory.fill(round);
            for _ in 0..=random.below(4) {
                if random.below(2) == 0 {
                    report(&mut random, &mut balloon, &mut memory);
                } else {
                    inflate(&mut random, &mut balloon, &mut memory);
                }
                memory.check(round);
            }
        }
        say!("guest: {} pages were given back, and read as they are to", memory.count);
        if !is_fork() {
            memory.fill(FROZEN);
        }
        say!("guest: may be frozen");
        waits(&mut balloon, &memory);
        if is_fork() {
            memory.expected = Some(FROZEN);
            memory.given.fill(0);
            memory.check(FROZEN);
            say!("guest: all of its memory is the frozen one's");
        }
    }
}

/// Waits for a byte that is typed: `e` ends the guest, and `g` has it give all of that memory back, and wait again.
fn waits(balloon: &mut Balloon, memory: &Memory) {
    loop {
        match typed() {
            b'e' => power_off(),
            b'g' => {
                let bytes = (memory.pages.end - memory.pages.start) * PAGE;
                balloon.report([(FIRST, bytes)].into_iter());
                say!("guest: has given all of it back");
            }
            b' '..=b'~' => return,
            // The end of a line.
            _ => {}
        }
    }
}

/// The number behind `gives=` on the command line, which is somewhere in the device tree.
fn asked(tree: u64) -> Option<u64> {
    let at = |offset: u64| load::<u8>(tree + offset);
    let name = b"gives=";
    let start =
        (0..0x1_0000).find(|start| (*start..).zip(name).all(|(place, byte)| at(place) == *byte))?;
    let digits = (start + name.len() as u64..).map(at).take_while(u8::is_ascii_digit);
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
