//! The trait of a backend: the calls of a VM's lifecycle.

use mayfly_record::ResultRow;

use crate::params::Order;
use crate::start::Start;
use crate::work::Spent;

use super::shape::Shape;

/// Something that VMs are created on, one at a time. Each method is one call of a VM's life, and does nothing else that
/// takes time; what it needs has been made before.
pub(super) trait Subject {
    /// Goes once through what all designs have in common, so that what is timed next is not the processor's caches
    /// filling after a pause; not timed.
    fn warm_up(&mut self, order: Order) -> anyhow::Result<()>;

    /// Begins to count what each thread does.
    fn begin(&mut self);

    /// What each thread has done since.
    fn end(&mut self) -> Spent;

    /// Creates the VM.
    fn create(&mut self, order: Order) -> anyhow::Result<()>;

    /// Creates the interrupt controller.
    fn create_irqchip(&mut self) -> anyhow::Result<()>;

    /// Registers the ioeventfd of this index.
    fn register(&mut self, index: u32) -> anyhow::Result<()>;

    /// Unregisters the ioeventfd of this index.
    fn unregister(&mut self, index: u32) -> anyhow::Result<()>;

    /// Sets the memslot of this index; 0 has the guest's code.
    fn set_memory(&mut self, index: u16) -> anyhow::Result<()>;

    /// Whether a VM gets vCPUs when others run.
    fn creates_vcpus_late(&self) -> bool {
        true
    }

    /// Creates the vCPU of this number.
    fn create_vcpu(&mut self, id: u32) -> anyhow::Result<()>;

    /// Makes the vCPUs ready to run, and writes to the memory that they touch first, as whoever loads a guest does;
    /// timed as a part of the total only. Left as the VM before left them, those pages made a first exit twice as long,
    /// and longest after the calls that had waited least: what these had stored was still on its way to memory.
    fn prepare(&mut self) -> anyhow::Result<()>;

    /// Runs vCPU 0 to its first MMIO exit, at the doorbell, where no ioeventfd is yet.
    fn run_to_first_exit(&mut self) -> anyhow::Result<()>;

    /// What the VM has; not timed.
    fn start(&self) -> anyhow::Result<Start>;

    /// Registers the doorbell's ioeventfd, and has every vCPU write to it, each on its thread; returns when each has.
    fn start_all(&mut self, shape: Shape) -> anyhow::Result<()>;

    /// Stops every vCPU.
    fn stop_all(&mut self) -> anyhow::Result<()>;

    /// Destroys the VM and its vCPUs.
    fn destroy(&mut self) -> anyhow::Result<()>;

    /// Cleans up after [`Subject::destroy`]; not timed.
    fn clean_up(&mut self);

    /// Adds what was counted and checked to `row`.
    fn report(&self, row: ResultRow) -> ResultRow;
}
