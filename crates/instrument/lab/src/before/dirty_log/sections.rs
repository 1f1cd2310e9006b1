//! Who is handling an exit (`kvm->srcu`): a caller that changes a slot's flags waits for them.

use std::thread::yield_now;

use mayfly_platform::sync::{AtomicU64, CacheLine, Ordering::SeqCst};

/// For each vCPU, how often it has begun and ended to handle an exit: odd while it does.
pub(super) struct Sections(Box<[CacheLine<AtomicU64>]>);

impl Sections {
    pub(super) fn of(vcpus: u32) -> Self {
        Self((0..vcpus).map(|_| CacheLine(AtomicU64::new(0))).collect())
    }

    /// Handles an exit of a vCPU.
    pub(super) fn inside<T>(&self, vcpu: usize, handle: impl FnOnce() -> T) -> T {
        self.0[vcpu].fetch_add(1, SeqCst);
        let handled = handle();
        self.0[vcpu].fetch_add(1, SeqCst);
        handled
    }

    /// Waits until the exits are handled that are being handled now (`synchronize_srcu_expedited`).
    pub(super) fn synchronize(&self) {
        for vcpu in &self.0 {
            let seen = vcpu.load(SeqCst);
            while seen % 2 == 1 && vcpu.load(SeqCst) == seen {
                yield_now();
            }
        }
    }
}
