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

/// The translation base register, and whether a guest uses it.
#[derive(Debug, Default)]
pub(super) struct Register {
    pub(super) named: Option<(Pfn, Vmid)>,
    pub(super) in_guest: bool,
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

    /// Has the register name no root under `vmid`, as an interrupt's handler does there.
    ///
    /// # Panics
    ///
    /// If a guest is running on it.
    pub(super) fn vacate(&self, vmid: Vmid) {
        let mut register = lock(&self.register);
        if register.named.take_if(|named| named.1 == vmid).is_some() {
            assert!(!register.in_guest, "a root is given up while a guest runs on it");
        }
    }
}
