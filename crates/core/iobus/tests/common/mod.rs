//! What the tests share.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mayfly_iobus::{IoBus, IoRange, Ioeventfd};
use mayfly_platform::{Host, Platform};
use mayfly_srcu::{Config, Limits, Srcu};

/// The host; under Miri, which does not know `membarrier`, with fenced readers.
pub(crate) fn host() -> Arc<dyn Platform> {
    Arc::new(if cfg!(miri) { Host::fenced() } else { Host::new() })
}

/// A bus of a domain without a worker.
pub(crate) fn bus<D: Send + Sync>() -> (Srcu, IoBus<D>) {
    bus_within(Limits::default())
}

/// The same, whose domain has these bounds.
pub(crate) fn bus_within<D: Send + Sync>(limits: Limits) -> (Srcu, IoBus<D>) {
    let platform = host();
    let config = Config { limits, ..Config::default() };
    let domain = Srcu::try_new(Arc::clone(&platform), config).unwrap();
    let bus = IoBus::try_new(&domain, platform).unwrap();
    (domain, bus)
}

pub(crate) fn range(start: u64, len: u64) -> IoRange {
    IoRange { start, len }
}

pub(crate) fn eventfd(address: u64, len: u32, datamatch: Option<u64>) -> Ioeventfd {
    Ioeventfd { address, len, datamatch }
}

const ALIVE: u64 = 0x0a11_ce00_0a11_ce00;
const POISON: u64 = 0xdead_beef_dead_beef;

/// A device that shows when it is used after its drop, and counts how many of its kind there are.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) id: u64,
    canary: AtomicU64,
    living: Arc<AtomicUsize>,
}

impl Device {
    pub(crate) fn new(id: u64, living: &Arc<AtomicUsize>) -> Self {
        living.fetch_add(1, Ordering::Relaxed);
        Self { id, canary: AtomicU64::new(ALIVE), living: Arc::clone(living) }
    }

    pub(crate) fn assert_alive(&self) {
        assert_eq!(self.canary.load(Ordering::Relaxed), ALIVE, "a device was found after its drop");
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let canary = self.canary.swap(POISON, Ordering::Relaxed);
        assert_eq!(canary, ALIVE, "a device was dropped twice");
        self.living.fetch_sub(1, Ordering::Relaxed);
    }
}
