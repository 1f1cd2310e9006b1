//! Threads of a test that end together: where one fails, no other waits for it for ever.

#![allow(dead_code, reason = "each test has its own copy of this module, and uses a part of it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::yield_now;

use mayfly_machine::{MachineVm, MachineWorld};
use mayfly_stage2::Format;
use mayfly_vm::Vm;

/// Says that a test is over when it is dropped, also by a panic. Each thread that another waits for has one, and who tells
/// threads to stop.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until `is_so`. Panics where the test is over, and it is not.
pub(crate) fn until(over: &AtomicBool, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(!over.load(Ordering::Acquire) || is_so(), "who was waited for has ended");
        yield_now();
    }
}

/// Brings the vCPUs of a VM out, for good, when it is dropped by a panic: a [`CpuThread`](mayfly_machine::CpuThread) that
/// is dropped waits for its guest, which may never leave by itself. So it comes after those.
pub(crate) struct Out<F: Format>(Vm<MachineWorld<F>>);

impl<F: Format> Out<F> {
    pub(crate) fn of(vm: &MachineVm<F>) -> Self {
        Self(Vm::clone(vm))
    }
}

impl<F: Format> Drop for Out<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.clone().destroy();
        }
    }
}
