//! Which vCPUs a VM has. Under the VM's lock; no vCPU takes it while it runs.

use alloc::vec::Vec;

use mayfly_platform::memory::{OutOfMemory, Shared};

use crate::{Error, Requests};

/// vCPU numbers are below this: `KVM_MAX_VCPU_IDS` of x86 with the default `KVM_MAX_VCPUS` of 1024.
pub(crate) const LIMIT: u32 = 4096;

/// A VM's vCPUs by number.
pub(crate) struct Vcpus {
    /// Sorted by number.
    list: Vec<(u32, Shared<Requests>)>,
}

impl Vcpus {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new() }
    }

    pub(crate) fn add(&mut self, id: u32, requests: Shared<Requests>) -> Result<(), Error> {
        if id >= LIMIT {
            return Err(Error::VcpuOutOfRange { id, limit: LIMIT });
        }
        let Err(at) = self.find(id) else { return Err(Error::VcpuExists(id)) };
        self.list.try_reserve(1).map_err(OutOfMemory::from)?;
        self.list.insert(at, (id, requests));
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u32) {
        if let Ok(at) = self.find(id) {
            self.list.remove(at);
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Shared<Requests>> {
        self.find(id).ok().map(|at| &self.list[at].1)
    }

    /// The first vCPU that is numbered `id` or above.
    pub(crate) fn from(&self, id: u32) -> Option<(u32, Shared<Requests>)> {
        let at = self.find(id).unwrap_or_else(|at| at);
        self.list.get(at).cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Shared<Requests>> {
        self.list.iter().map(|(_, requests)| requests)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    fn find(&self, id: u32) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |&(other, _)| other)
    }
}
