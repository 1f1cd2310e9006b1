//! The kinds of episodes, and how many there were of each.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::console::Console;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any bytes as code, in 64 bits.
    Long,
    /// The same in real mode, where the second vCPU begins.
    Real,
    /// Page tables with any entries.
    Tables,
    Msr,
    Port,
    Cpuid,
    /// Interrupts of all kinds, sent by the local APIC, in both of its modes; its timer; the IOAPIC.
    Apic,
    /// Code that changes itself, or is changed by the other vCPU.
    Changed,
    /// Exceptions, single steps and breakpoints, also without a stack.
    Events,
    /// SVM's instructions, which must be refused.
    Svm,
    /// Any instructions at addresses of devices.
    Device,
    /// Queues of virtio devices.
    Virtio,
    /// A switch of tasks in 32 bits.
    Task,
    Reset,
    /// A triple fault.
    Triple,
}

/// All, with how often each is drawn, and what it is called.
pub(super) const ALL: [(Kind, u64, &str); 15] = [
    (Kind::Long, 1200, "long"),
    (Kind::Real, 300, "real"),
    (Kind::Tables, 1000, "tables"),
    (Kind::Msr, 1000, "msr"),
    (Kind::Port, 1000, "port"),
    (Kind::Cpuid, 300, "cpuid"),
    (Kind::Apic, 1000, "apic"),
    (Kind::Changed, 600, "changed"),
    (Kind::Events, 600, "events"),
    (Kind::Svm, 400, "svm"),
    (Kind::Device, 1500, "device"),
    (Kind::Virtio, 150, "virtio"),
    (Kind::Task, 200, "task"),
    // They end a life, which is not drawn.
    (Kind::Reset, 0, "reset"),
    (Kind::Triple, 0, "triple"),
];

static DONE: [AtomicU32; ALL.len()] = [const { AtomicU32::new(0) }; ALL.len()];
/// What code without Rust counts: how often the second vCPU came back to 64 bits, tasks that were switched to, and back from.
#[unsafe(export_name = "fuzz_came_back")]
static CAME_BACK: AtomicU32 = AtomicU32::new(0);
#[unsafe(export_name = "fuzz_switched")]
static SWITCHED: AtomicU32 = AtomicU32::new(0);
#[unsafe(export_name = "fuzz_switched_back")]
static SWITCHED_BACK: AtomicU32 = AtomicU32::new(0);

/// One more.
pub(super) fn count(kind: Kind) {
    DONE[kind as usize].fetch_add(1, Ordering::Relaxed);
}

/// Says how many there were since it was said last.
pub(super) fn tell() {
    let console = &mut Console;
    let _ = write!(console, "\r\n{}: did", crate::NAME);
    let others =
        [(&CAME_BACK, "came-back"), (&SWITCHED, "switched"), (&SWITCHED_BACK, "switched-back")];
    let all = DONE.iter().zip(ALL).map(|(done, (.., name))| (done, name));
    for (done, name) in all.chain(others) {
        let _ = write!(console, " {name} {}", done.swap(0, Ordering::Relaxed));
    }
    let _ = write!(console, " end\r\n");
}
