//! The list of a VM's vCPUs. It is under the VM's lock, which no vCPU takes while it runs.

use alloc::vec::Vec;

use mayfly_platform::memory::{Kept, OutOfMemory};

use crate::Error;
use crate::kicker::{Asked, Kicker};

/// vCPU numbers are below this: `KVM_MAX_VCPU_IDS` of x86 with the default `KVM_MAX_VCPUS` of 1024.
pub(crate) const LIMIT: u32 = 4096;

/// A VM's vCPUs by number.
pub(crate) struct Vcpus {
    /// Sorted by number.
    list: Vec<(u32, Kept<Asked>)>,
}

impl Vcpus {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new() }
    }

    pub(crate) fn add(&mut self, id: u32, asked: Kept<Asked>) -> Result<Kicker, Error> {
        if id >= LIMIT {
            return Err(Error::VcpuOutOfRange { id, limit: LIMIT });
        }
        let Err(at) = self.find(id) else { return Err(Error::VcpuExists(id)) };
        self.list.try_reserve(1).map_err(OutOfMemory::from)?;
        let kicker = Asked::kicker(&asked);
        self.list.insert(at, (id, asked));
        Ok(kicker)
    }

    #[must_use = "there may be a handle to it"]
    pub(crate) fn remove(&mut self, id: u32) -> Option<Kept<Asked>> {
        self.find(id).ok().map(|at| self.list.remove(at).1)
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Kept<Asked>> {
        self.find(id).ok().map(|at| &self.list[at].1)
    }

    /// The first vCPU that is numbered `id` or above.
    pub(crate) fn from(&self, id: u32) -> Option<(u32, Kicker)> {
        let at = self.find(id).unwrap_or_else(|at| at);
        self.list.get(at).map(|(id, asked)| (*id, Asked::kicker(asked)))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Kept<Asked>> {
        self.list.iter().map(|(_, asked)| asked)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    fn find(&self, id: u32) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |&(other, _)| other)
    }
}
