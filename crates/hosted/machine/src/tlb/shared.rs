//! What a CPU and those that ask something of it share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_platform::address::Pfn;
use mayfly_platform::sync::CacheLine;
use mayfly_platform::tlb::Vmid;

use super::counts::CpuCells;
use super::mailbox::Mailbox;
use crate::lock::lock;

/// What a CPU and those who ask something of it share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) number: u32,
    pub(super) mailbox: Mailbox,
    pub(super) counts: CacheLine<CpuCells>,
    pub(super) register: Mutex<Register>,
    /// An interrupt is pending.
    pub(super) interrupted: AtomicBool,
}

/// The translation base register, and the root that a guest is on.
#[derive(Debug, Default)]
pub(super) struct Register {
    pub(super) named: Option<(Pfn, Vmid)>,
    pub(super) in_guest: Option<Pfn>,
}

impl Shared {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            mailbox: Mailbox::new(),
            counts: CacheLine::default(),
            register: Mutex::default(),
            interrupted: AtomicBool::new(false),
        }
    }

    /// Release: who takes the interrupt sees what was written before.
    pub(super) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
    }

    pub(super) fn named(&self) -> Option<(Pfn, Vmid)> {
        lock(&self.register).named
    }

    /// Has the register name no root under `vmid`, as an interrupt's handler does there. A guest is on another root then, to
    /// which a roll-over has given the VMID since this CPU was seen on the one that goes: it comes out, and the register names
    /// its root when it is entered again.
    pub(super) fn vacate(&self, vmid: Vmid) {
        let mut register = lock(&self.register);
        if register.named.take_if(|named| named.1 == vmid).is_some() && register.in_guest.is_some()
        {
            self.interrupt();
        }
    }

    /// Whether a guest is on the root in frame `top`.
    pub(super) fn is_in_guest_on(&self, top: Pfn) -> bool {
        lock(&self.register).in_guest == Some(top)
    }
}
