//! Random numbers for guests, from one generator. It is seeded by what the machine has.

use mayfly_devices::entropy::Generator;

use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::{NO_RANDOM, cpu, timer};
use crate::bare::threads::console::say;

static POOL: SpinLock<Option<Generator>> = SpinLock::new(None);

/// Bytes of numbers that are drawn at once: with the next key, all of four blocks of the generator's stream, of which each
/// takes as long as any part of it.
const DRAWN: usize = 4 * 64 - 32;

/// Numbers that were drawn and that nobody has.
struct Drawn {
    bytes: [u8; DRAWN],
    left: usize,
}

static NUMBERS: SpinLock<Drawn> = SpinLock::new(Drawn { bytes: [0; DRAWN], left: 0 });

/// Seeds it by what the firmware left, and by what the processor gives.
pub(crate) fn prepare(seed: &[u8]) {
    let mut generator = Generator::new(seed);
    let given = stir(&mut generator);
    if seed.is_empty() && !given {
        say!("mayfly: random numbers of guests can be guessed: {NO_RANDOM}");
    }
    *POOL.lock() = Some(generator);
}

/// Adds what is new: the time, and what the processor gives. Returns whether it gives anything.
fn stir(generator: &mut Generator) -> bool {
    generator.stir(&timer::ticks().to_le_bytes());
    let mut given = false;
    for _ in 0..4 {
        if let Some(number) = cpu::random() {
            generator.stir(&number.to_le_bytes());
            given = true;
        }
    }
    given
}

/// A number that no other caller gets, and that cannot be guessed. Nothing new is added for it, which would take as long as
/// the number.
pub(crate) fn number<const BYTES: usize>() -> [u8; BYTES] {
    const { assert!(BYTES <= DRAWN, "as many are drawn at a time") };
    let mut number = [0; BYTES];
    let mut drawn = NUMBERS.lock();
    if drawn.left < BYTES {
        POOL.lock().get_or_insert_with(|| Generator::new(&[])).fill(&mut drawn.bytes);
        drawn.left = DRAWN;
    }
    let end = drawn.left;
    let own = &mut drawn.bytes[end - BYTES..end];
    number.copy_from_slice(own);
    own.fill(0);
    drawn.left = end - BYTES;
    number
}

/// A seed that no other caller gets.
pub(crate) fn seed<const BYTES: usize>() -> [u8; BYTES] {
    let mut seed = [0; BYTES];
    let mut pool = POOL.lock();
    let generator = pool.get_or_insert_with(|| Generator::new(&[]));
    stir(generator);
    generator.fill(&mut seed);
    seed
}
