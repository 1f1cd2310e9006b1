//! The format of guests' tables, which is chosen when the program starts.

use alloc::sync::Arc;
use core::marker::PhantomData;

use mayfly_vm::Device;
use mayfly_vm::memslot::Hva;
use mayfly_vm::stage2::Format;

use super::arch::Confinement;
use crate::bare::world::memory::GuestMemory;

/// A format that the processors of this architecture have.
pub(crate) trait TableFormat: Format {
    /// What guests of this format are confined by.
    ///
    /// # Panics
    ///
    /// If it is not the format that this machine's processors were prepared for.
    fn confinement() -> Confinement<Self>;
}

/// What VMs of a format are made of.
pub(crate) struct Kinds<F>(PhantomData<F>);

impl<F: TableFormat> mayfly_vm::World for Kinds<F> {
    type Device = Arc<dyn Device>;
    type Backing = Hva;
    type Format = F;
    type Memory = GuestMemory;
}

/// What is to be done with the format that this machine's processors have.
pub(crate) trait WithFormat {
    /// What it returns.
    type Output;

    /// Does it.
    fn run<F: TableFormat>(self) -> Self::Output;
}
