//! Invalidations that are complete too early.
//!
//! On some processors a `TLBI` and its `DSB` may be over while other CPUs have accesses under way that were translated by
//! what was invalidated; when another `TLBI`, whichever, and its `DSB` are over, those are too (Cortex-A76's erratum
//! 1286807, Cortex-A55's 2441007, Cortex-A510's 2441009; Linux: `ARM64_WORKAROUND_REPEAT_TLBI`). So here a thread that
//! completes an invalidation waits for what it had posted when it completed the one before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mayfly_platform::tlb::TlbToken;

use super::shared::Shared;
use crate::lock::lock;
use crate::recorder;

/// What was posted when an invalidation was completed.
#[derive(Debug)]
pub(super) struct Posts {
    pub(super) token: TlbToken,
    /// How much to each CPU.
    pub(super) of_cpus: Vec<(Arc<Shared>, u32)>,
}

impl Posts {
    /// By now.
    pub(super) fn new(token: TlbToken, cpus: &[Arc<Shared>]) -> Self {
        let posted = |cpu: &Arc<Shared>| (Arc::clone(cpu), cpu.mailbox.posted());
        Self { token, of_cpus: cpus.iter().map(posted).collect() }
    }
}

/// What each thread has completed last.
#[derive(Debug, Default)]
pub(super) struct Early(Mutex<HashMap<u32, Posts>>);

impl Early {
    /// This thread completes an invalidation. Returns what is to be waited for.
    pub(super) fn complete(&self, posts: Posts) -> Option<Posts> {
        lock(&self.0).insert(recorder::cpu(), posts)
    }
}
