//! The processors of the machine: started by the firmware's PSCI, numbered from 0, kicked by software interrupts.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mayfly_arm64::gic::Redistributor;
use mayfly_arm64::{cache, cpu, gic, switch, tlb};
use mayfly_hypervisor::tree::Board;
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::platform::tlb::Vmid;
use smccc::Smc;

use super::console::say;
use super::entry::{Start, secondary_start};
use super::once::Once;
use super::{threads, world};

/// Processors that are used at most.
pub(super) const MAX: usize = 64;

/// The affinity of each.
static AFFINITIES: [AtomicU64; MAX] = [const { AtomicU64::new(0) }; MAX];
static REDISTRIBUTORS: [Once<Redistributor>; MAX] = [const { Once::new() }; MAX];
/// How many are up.
static UP: AtomicU32 = AtomicU32::new(0);

/// How many processors are up.
pub(super) fn count() -> u32 {
    UP.load(Ordering::Acquire)
}

/// Has another processor look for what is new.
pub(super) fn kick(number: usize) {
    gic::kick(AFFINITIES[number].load(Ordering::Relaxed));
}

/// The affinity of a processor.
pub(super) fn affinity(number: usize) -> u64 {
    AFFINITIES[number].load(Ordering::Relaxed)
}

/// This processor's redistributor.
pub(super) fn redistributor() -> Option<Redistributor> {
    REDISTRIBUTORS[cpu::number()].get().copied()
}

/// A VMID that a processor is to name no more, plus 1; 0 for none. Set by who wants it, cleared by the processor.
static VACATES: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];

/// Has a processor name no root under `vmid` ([`Tlb::vacate`](mayfly_vm::platform::tlb::Tlb::vacate)).
///
/// The other processor does it when it next looks at its interrupts. It does so however long what it is at takes, for what
/// spins at EL2 with interrupts masked waits for no thread; and who waits here goes on obeying others.
pub(super) fn vacate(number: usize, vmid: Vmid) {
    if !tlb::walks_out_of_guests() || number >= count() as usize {
        return;
    }
    if number == cpu::number() {
        return world::empty_root().replace(vmid);
    }
    let wanted = u32::from(vmid.0) + 1;
    let word = &VACATES[number];
    // Release: who takes it sees what was written before.
    while word.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        obey();
        mayfly_arm64::spin::relax();
    }
    kick(number);
    while word.load(Ordering::Acquire) == wanted {
        obey();
        mayfly_arm64::spin::relax();
    }
}

/// Does what other processors want of this one.
pub(super) fn obey() {
    let word = &VACATES[cpu::number()];
    let wanted = word.load(Ordering::Acquire);
    if let Some(vmid) = wanted.checked_sub(1) {
        world::empty_root().replace(Vmid(vmid as u16));
        word.store(0, Ordering::Release);
    }
}

/// Says that this processor, of that number, is up. Returns what stands in the way, if anything does.
pub(super) fn prepare(number: usize) -> Result<(), &'static str> {
    // SAFETY: each processor has a number of its own, given first of all.
    unsafe {
        cpu::set_number(number);
        switch::set_vectors();
    }
    let affinity = cpu::affinity();
    AFFINITIES[number].store(affinity, Ordering::Relaxed);
    let redistributor = world::gic().redistributor(affinity).ok_or("it has no redistributor")?;
    REDISTRIBUTORS[number].set(redistributor);
    redistributor.prepare().map_err(|_| "it has no system registers for interrupts")?;
    // SAFETY: at EL2, whose E2H the first instructions cleared; the format is the same on all.
    unsafe { cpu::prepare(world::vtcr()) };
    world::empty_root().load();
    world::virtual_interface().clear();
    threads::adopt();
    UP.fetch_add(1, Ordering::Release);
    Ok(())
}

/// Starts the others, one after the other: those that come up are numbered without a gap.
pub(super) fn start_others(board: &Board, table: u64) {
    let here = cpu::affinity();
    for &affinity in board.cpus.iter().filter(|&&affinity| affinity != here).take(MAX - 1) {
        let number = count();
        let Some(frames) = world::allocate_frames(threads::STACK_ORDER) else {
            say!("no memory to start CPU {affinity:#x}");
            return;
        };
        let stack = (frames.get() + (1 << threads::STACK_ORDER)) * PAGE_SIZE;
        let start = Box::leak(Box::new(Start { stack, table, number: u64::from(number) }));
        let start = core::ptr::from_ref(start).addr() as u64;
        cache::clean_bytes(start, size_of::<Start>() as u64);
        let entry = secondary_start as *const () as u64;
        if let Err(error) = smccc::psci::cpu_on::<Smc>(affinity, entry, start) {
            say!("CPU {affinity:#x} does not start: {error}");
            continue;
        }
        // It comes up, or says why not and stays away for good.
        while count() == number && REFUSED.load(Ordering::Acquire) == 0 {
            mayfly_arm64::spin::relax();
        }
        REFUSED.store(0, Ordering::Relaxed);
    }
}

/// A processor has refused to come up.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Where a processor other than the first comes to Rust.
pub(super) extern "C" fn secondary(number: u64) -> ! {
    if let Err(why) = prepare(number as usize) {
        say!("CPU {number} is left alone: {why}");
        REFUSED.store(1, Ordering::Release);
        loop {
            mayfly_arm64::spin::wait_for_interrupt();
        }
    }
    threads::idle()
}
