//! What the monitor prints of VMs, and of the program: what they have, what they did, what was lost.

use core::fmt::Write;

use alloc::string::String;
use mayfly_hypervisor::needs::CHUNK_BYTES;
use mayfly_hypervisor::plan::Plan;
use mayfly_vm::platform::address::PAGE_SIZE;

use super::ends;
use crate::bare::processor::{frames, heap, masked, timer};
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::vm::Machine;

/// What the program has, to find what was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Possession {
    /// Frames that are free, or that the heap has grown by.
    pub(crate) frames: u64,
    /// Bytes of the heap that are in use.
    pub(crate) bytes: usize,
}

impl Possession {
    pub(crate) fn now() -> Self {
        let frames = frames::count_free() + heap::grown();
        Self { frames, bytes: heap::in_use() }
    }

    /// How many frames, and bytes of heap, are not freed. Waits for a while, since the next thread on a processor frees
    /// the stack of the one before.
    pub(crate) fn lost_since(before: Self) -> (i64, isize) {
        let deadline = timer::ticks() + timer::frequency();
        let mut now = Self::now();
        while now != before && timer::ticks() < deadline {
            let soon = timer::ticks() + timer::frequency() / 100;
            ends::wait(soon);
            now = Self::now();
        }
        let frames = before.frames.cast_signed() - now.frames.cast_signed();
        (frames, now.bytes.cast_signed() - before.bytes.cast_signed())
    }
}

/// Prints how long interrupts were masked, and how long a thread that could run has waited.
pub(crate) fn say_bounds() {
    say!(
        "mayfly: interrupts were masked for at most {} ns at a time; a runnable thread waited for a CPU for at most {} % of the time that is allowed",
        masked::longest(),
        threads::longest_wait()
    );
}

/// Prints how much memory is free, how much heap is in use, and how much VMs are guaranteed of it.
pub(crate) fn say_heap() {
    say!(
        "mayfly: {} KiB of memory are free, with what the heap has grown by",
        Possession::now().frames * 4
    );
    let (used, guaranteed) = (heap::in_use() >> 10, heap::guaranteed() >> 10);
    say!("mayfly: {used} KiB of heap in use, {guaranteed} KiB guaranteed");
    let (used, guaranteed) = heap::take_peaks();
    say!(
        "mayfly: at most {} KiB of heap were in use, and {} KiB guaranteed, since this was said last",
        used >> 10,
        guaranteed >> 10
    );
}

/// Prints the state of a VM.
pub(crate) fn list(machine: &Machine) {
    let Plan { name, vcpus, memory, .. } = &machine.plan;
    say!("{name}: {}, {vcpus} vCPUs, {} MiB of memory", machine.state(), memory >> 20);
}

/// Prints what a VM has, and its exits by reason.
pub(crate) fn stat(machine: &Machine) {
    list(machine);
    let milliseconds = machine.account.spent().0 * 1000 / timer::frequency();
    say!(
        "{}: {} KiB allocated, {milliseconds} ms of CPU time",
        machine.plan.name,
        machine.frames() * 4
    );
    if let Some(share) = machine.worlds().as_ref().and_then(|worlds| worlds.memory.share()) {
        let mib = |chunks: u64| (chunks * CHUNK_BYTES) >> 20;
        let (used, above) = (mib(share.used()), mib(share.above()));
        say!(
            "{}: {} MiB of memory reserved, {used} MiB used, {above} MiB above its guarantee",
            machine.plan.name,
            machine.plan.reserved() >> 20
        );
    }
    let given_back = machine.with_balloon(|balloon| (balloon.pages(), balloon.freed()));
    if let Some((pages, (freed, nanoseconds))) = given_back {
        let mib = |pages: u64| (pages * PAGE_SIZE) >> 20;
        if let Some((target, actual)) = pages {
            say!(
                "{}: a balloon of {} MiB, of {} asked for",
                machine.plan.name,
                mib(actual.into()),
                mib(target.into())
            );
        }
        say!("{}: {freed} frames given back by its guest, in {nanoseconds} ns", machine.plan.name);
    }
    if let Some((merged, met)) = machine.merged() {
        say!(
            "{}: {merged} pages merged, {met} faults on entries that merging made empty or froze",
            machine.plan.name
        );
    }
    let disk = machine.disk_bytes();
    if disk != 0 {
        say!(
            "{}: {} KiB of a disk of {} KiB written",
            machine.plan.name,
            machine.disk_frames() * 4,
            disk >> 10
        );
    }
    if let Some(nanoseconds) = machine.counts.until_entered().filter(|_| machine.is_fork()) {
        say!(
            "{}: went on as its frozen VM was {nanoseconds} ns after the command",
            machine.plan.name
        );
        let freed = machine.counts.given_back();
        if freed != 0 {
            say!("{}: gave back {freed} frames before that", machine.plan.name);
        }
    }
    if let Some(nanoseconds) = machine.counts.stood() {
        say!("{}: stood still for {nanoseconds} ns when it was forked last", machine.plan.name);
    }
    if let Some(tenant) = machine.tenant() {
        say!("{}: partition: {}", machine.plan.name, tenant.done);
    }
    machine.say_frames();
    for (reason, count) in machine.counts.exits().filter(|(_, count)| *count > 0) {
        say!("{}: {count} exits: {reason}", machine.plan.name);
    }
    let mut devices = String::new();
    for (device, count) in machine.counts.answers().filter(|(_, count)| *count > 0) {
        let comma = if devices.is_empty() { "" } else { "," };
        // Into memory: it does not fail.
        let _ = write!(devices, "{comma} {count} {device}");
    }
    if !devices.is_empty() {
        say!("{}: of the exits to devices,{devices}", machine.plan.name);
    }
}
