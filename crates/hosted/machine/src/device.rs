//! Devices of the software machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_vm::Device;

/// A device of any kind, as the machine's VMs hold it.
pub type AnyDevice = Arc<dyn Device>;

/// A device of one register: reads give the last value written. Counts accesses.
#[derive(Debug, Default)]
pub struct Register {
    value: AtomicU64,
    accesses: AtomicU64,
}

impl Register {
    /// How many accesses there were.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// The last value written.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }
}

impl Device for Register {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let value = self.value.load(Ordering::Acquire).to_le_bytes();
        let len = data.len().min(value.len());
        data[..len].copy_from_slice(&value[..len]);
    }

    fn write(&self, _vcpu: u32, _offset: u64, data: &[u8]) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let mut value = [0; 8];
        let len = data.len().min(value.len());
        value[..len].copy_from_slice(&data[..len]);
        self.value.store(u64::from_le_bytes(value), Ordering::Release);
    }
}

/// What an ioeventfd signals: a count that the host takes.
#[derive(Debug, Default)]
pub struct Signal {
    count: AtomicU64,
}

impl Signal {
    /// Signals since the last call.
    pub fn take(&self) -> u64 {
        self.count.swap(0, Ordering::AcqRel)
    }
}

impl Device for Signal {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        self.count.fetch_add(1, Ordering::Release);
    }
}
