//! How any thread, and any handler of an interrupt, tells a vCPU that there is something new for it.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_vm::Kicker;
use mayfly_vm::platform::memory::OutOfMemory;

use super::course::number;
use crate::bare::processor::spin::SpinLock;

/// What a vCPU is asked, as a bit of [`Kicker::ask`]: to look at its interrupts.
pub(crate) const LOOK: u16 = 1;
/// The same: to have its guest take an `SError`.
pub(crate) const FAIL: u16 = 2;

struct Place {
    kicker: SpinLock<Option<Kicker>>,
    /// The number of its thread.
    thread: AtomicU64,
}

/// The vCPUs of one run of a VM.
pub(crate) struct Places(Vec<Place>);

impl Places {
    pub(crate) fn try_new(vcpus: u32) -> Result<Self, OutOfMemory> {
        let mut places = Vec::new();
        places.try_reserve_exact(vcpus as usize).map_err(|_| OutOfMemory)?;
        places.resize_with(vcpus as usize, || Place {
            kicker: SpinLock::new(None),
            thread: AtomicU64::new(0),
        });
        Ok(Self(places))
    }

    /// The calling thread, which is the vCPU's, takes its place.
    pub(crate) fn take(&self, vcpu: usize, kicker: Kicker) {
        self.0[vcpu].thread.store(number(), Ordering::Relaxed);
        *self.0[vcpu].kicker.lock() = Some(kicker);
    }

    /// The vCPU ends.
    pub(crate) fn leave(&self, vcpu: usize) {
        let kicker = self.0[vcpu].kicker.lock().take();
        drop(kicker);
    }

    /// Makes a vCPU leave its guest for good.
    pub(crate) fn end(&self, vcpu: usize) {
        if let Some(place) = self.0.get(vcpu)
            && let Some(kicker) = &*place.kicker.lock()
        {
            kicker.kick();
        }
    }

    /// Has the guest of vCPU `vcpu` take an `SError`. Returns whether there is such a vCPU, whose thread has begun.
    pub(crate) fn fail(&self, vcpu: usize) -> bool {
        let Some(place) = self.0.get(vcpu) else { return false };
        let kicker = place.kicker.lock();
        kicker.as_ref().inspect(|kicker| kicker.ask(FAIL)).is_some()
    }

    /// Asks vCPU `vcpu` to look at its interrupts.
    pub(crate) fn kick(&self, vcpu: usize) {
        let Some(place) = self.0.get(vcpu) else { return };
        // A vCPU that is out of its guest looks before it goes in.
        if place.thread.load(Ordering::Relaxed) == number() {
            return;
        }
        if let Some(kicker) = &*place.kicker.lock() {
            kicker.ask(LOOK);
        }
    }
}
