//! What the second vCPU begins with in real mode: random code, the way to 64 bits, and a switch of tasks in 32 bits.

use core::cell::UnsafeCell;
use core::ptr::{addr_of, with_exposed_provenance_mut};

use mayfly_guests::wild::random::Random;

use super::code::{BYTES, Code};
use super::machine::{CODE_32, Shared, TASKS_32, describe, task};

core::arch::global_asm!(include_str!("low.S"), options(att_syntax));

unsafe extern "C" {
    static low_start: u8;
    static low_end: u8;
    static task_start: u8;
    static task_end: u8;
    static task_stack: u8;
    fn fault_32();
    fn task_other();
}

/// Pages below 1 MiB: the way to 64 bits, the switch of tasks, and the first of those of random code.
pub(super) const LONG: u64 = 0x6_0000;
const TASK: u64 = 0x6_1000;
const RANDOM: u64 = 0x8_0000;
/// JMP to the way to 64 bits, in real mode.
const BACK: [u8; 5] = [0xea, 0, 0, (LONG >> 4) as u8, (LONG >> 12) as u8];

#[unsafe(export_name = "fuzz_gates_32")]
static GATES: Shared<[u64; 256]> = Shared(UnsafeCell::new([0; 256]));
static STATES: Shared<[[u32; 32]; 2]> = Shared(UnsafeCell::new([[0; 32]; 2]));

fn copy(to: u64, bytes: &[u8]) {
    for (at, byte) in (to..).zip(bytes) {
        // SAFETY: memory below 1 MiB that nothing else has.
        unsafe { with_exposed_provenance_mut::<u8>(at as usize).write_volatile(*byte) }
    }
}

/// Bytes of the image, from one label to another.
fn between(first: *const u8, last: *const u8) -> &'static [u8] {
    // SAFETY: both are labels of `low.S`'s code.
    unsafe { core::slice::from_raw_parts(first, last.addr() - first.addr()) }
}

/// Puts it where it begins, and has the exceptions of real mode lead there.
pub(super) fn prepare() {
    copy(LONG, between(addr_of!(low_start), addr_of!(low_end)));
    copy(TASK, between(addr_of!(task_start), addr_of!(task_end)));
    for vector in 0..256_u64 {
        copy(4 * vector, &((LONG << 12) as u32).to_le_bytes());
    }
    let handler = fault_32 as *const () as u64;
    let gate = handler & 0xffff | CODE_32 << 16 | 0x8e << 40 | (handler >> 16) << 48;
    // SAFETY: nothing else has them yet.
    unsafe { (&mut *GATES.0.get()).fill(gate) }
}

/// Random code of real mode, which ends with the way to 64 bits: its page.
pub(super) fn random_code(random: &mut Random) -> u64 {
    let mut bytes = [0; BYTES];
    let mut code = Code::new(&mut bytes);
    for _ in 0..=random.below(6) {
        code.wild(random);
    }
    code.put(&BACK);
    let page = RANDOM + (random.below(16) << 12);
    copy(page, &bytes);
    page
}

/// Two tasks, of which the second may be anything: the page that switches between them.
pub(super) fn tasks(random: &mut Random) -> u64 {
    let eip = [fault_32 as *const () as u64, task_other as *const () as u64];
    for number in 0..2 {
        let mut state = [0_u32; 32];
        let stack = addr_of!(task_stack) as u32;
        (state[1], state[2], state[14]) = (stack, 0x18, stack);
        (state[8], state[9]) = (eip[number] as u32, 2);
        for segment in [18, 20, 21, 22, 23] {
            state[segment] = 0x18;
        }
        state[19] = CODE_32 as u32;
        state[25] = 0x68 << 16;
        let at = STATES.0.get().cast::<[u32; 32]>().wrapping_add(number);
        let mut descriptor = task(at as u64, 0x67);
        if number == 1 && random.once_in(2) {
            state[random.below(26) as usize] = random.next() as u32;
            if random.once_in(4) {
                descriptor ^= 1 << random.below(64);
            }
        }
        // SAFETY: this vCPU's to write; the other may be at it, which does to it what it does.
        unsafe { at.write_volatile(state) };
        describe(TASKS_32[number], descriptor);
    }
    TASK
}
