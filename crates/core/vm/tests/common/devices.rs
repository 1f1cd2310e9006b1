//! Devices that write down what they are asked.

use std::sync::{Arc, Mutex};

use mayfly_vm::Device;

pub(crate) type AnyDevice = Arc<dyn Device>;

/// What a [`Recorder`] was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `len` bytes at `offset` were read from device `id`.
    Read { id: u8, offset: u64, len: usize },
    /// `data` was written at `offset` of device `id`.
    Write { id: u8, offset: u64, data: Vec<u8> },
}

/// What some devices were asked, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Call>>>);

impl Log {
    /// The calls since the last time.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn push(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }
}

/// A device that writes down what it is asked, and of which every byte reads as its number.
pub(crate) struct Recorder {
    id: u8,
    log: Log,
}

impl Recorder {
    pub(crate) fn device(id: u8, log: &Log) -> AnyDevice {
        Arc::new(Self { id, log: log.clone() })
    }
}

impl Device for Recorder {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        data.fill(self.id);
        self.log.push(Call::Read { id: self.id, offset, len: data.len() });
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        self.log.push(Call::Write { id: self.id, offset, data: data.to_vec() });
    }
}

/// Whether both are the same device, not only equal ones.
pub(crate) fn same(one: &AnyDevice, other: &AnyDevice) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
