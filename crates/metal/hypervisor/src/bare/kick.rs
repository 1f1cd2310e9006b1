//! How a vCPU is told that there is something new for it: from any thread, and from interrupt handlers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_arm64::spin::SpinLock;
use mayfly_vgic::Kick;
use mayfly_vm::Kicker;
use mayfly_vm::platform::memory::OutOfMemory;

use super::threads;

/// What is asked of a vCPU, in the bits of [`Kicker::ask`]: to look at its interrupts.
pub(super) const LOOK: u16 = 1;

struct Place {
    kicker: SpinLock<Option<Kicker>>,
    /// The number of its thread.
    thread: AtomicU64,
}

/// The vCPUs of one life of a VM.
pub(super) struct Places(Vec<Place>);

impl Places {
    pub(super) fn try_new(vcpus: u32) -> Result<Self, OutOfMemory> {
        let mut places = Vec::new();
        places.try_reserve_exact(vcpus as usize).map_err(|_| OutOfMemory)?;
        places.resize_with(vcpus as usize, || Place {
            kicker: SpinLock::new(None),
            thread: AtomicU64::new(0),
        });
        Ok(Self(places))
    }

    /// The vCPU's thread, which calls this, takes its place.
    pub(super) fn take(&self, vcpu: usize, kicker: Kicker) {
        self.0[vcpu].thread.store(threads::number(), Ordering::Relaxed);
        *self.0[vcpu].kicker.lock() = Some(kicker);
    }

    /// The vCPU is going.
    pub(super) fn leave(&self, vcpu: usize) {
        let kicker = self.0[vcpu].kicker.lock().take();
        drop(kicker);
    }

    /// Has all vCPUs come out for good.
    pub(super) fn kick_all(&self) {
        for place in &self.0 {
            if let Some(kicker) = &*place.kicker.lock() {
                kicker.kick();
            }
        }
    }
}

impl Kick for Places {
    fn kick(&self, vcpu: usize) {
        let Some(place) = self.0.get(vcpu) else { return };
        // Who is out of the guest itself looks before it goes in.
        if place.thread.load(Ordering::Relaxed) == threads::number() {
            return;
        }
        if let Some(kicker) = &*place.kicker.lock() {
            kicker.ask(LOOK);
        }
    }
}

/// So that a GIC and a VM share them.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Arc<Places>);

impl Kick for Shared {
    fn kick(&self, vcpu: usize) {
        self.0.kick(vcpu);
    }
}
