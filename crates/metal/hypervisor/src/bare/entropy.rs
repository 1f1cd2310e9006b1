//! What cannot be guessed, for guests: drawn from one generator, which is seeded by what the machine has.

use mayfly_arm64::spin::SpinLock;
use mayfly_arm64::{cpu, timer};
use mayfly_devices::entropy::Generator;

use super::console::say;

static POOL: SpinLock<Option<Generator>> = SpinLock::new(None);

/// Takes what the firmware left in the device tree, and what the processor gives.
pub(super) fn prepare(seed: &[u8]) {
    let mut generator = Generator::new(seed);
    let given = stir(&mut generator);
    if seed.is_empty() && !given {
        say!(
            "mayfly: what guests get of random numbers can be guessed: the device tree has no rng-seed, the processor no RNDR"
        );
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

/// A seed that nobody else gets.
pub(super) fn seed<const BYTES: usize>() -> [u8; BYTES] {
    let mut seed = [0; BYTES];
    let mut pool = POOL.lock();
    let generator = pool.get_or_insert_with(|| Generator::new(&[]));
    stir(generator);
    generator.fill(&mut seed);
    seed
}
