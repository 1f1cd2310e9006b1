//! The device that a guest writes to in each of its loops.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_vm::Device;

/// The device that every vCPU writes its number to; knows which have. Once a vCPU has, its writes change nothing here.
pub(super) struct Doorbell {
    rang: Vec<AtomicBool>,
}

impl Doorbell {
    pub(super) fn new(vcpus: u32) -> Self {
        Self { rang: (0..vcpus).map(|_| AtomicBool::new(false)).collect() }
    }

    pub(super) fn reset(&self) {
        for rang in &self.rang {
            rang.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn all_rang(&self) -> bool {
        self.rang.iter().all(|rang| rang.load(Ordering::Relaxed))
    }
}

impl Device for Doorbell {
    fn read(&self, _: u32, _: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _: u32, _: u64, data: &[u8]) {
        let id = data.iter().rev().fold(0, |id, &byte| id << 8 | usize::from(byte));
        if let Some(rang) = self.rang.get(id)
            && !rang.load(Ordering::Relaxed)
        {
            rang.store(true, Ordering::Relaxed);
        }
    }
}
