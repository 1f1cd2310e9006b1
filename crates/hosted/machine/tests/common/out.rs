//! Guests that end with their test.

use mayfly_machine::{MachineVm, MachineWorld};
use mayfly_stage2::Format;
use mayfly_vm::Vm;

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
