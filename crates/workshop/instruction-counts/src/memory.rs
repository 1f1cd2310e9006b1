//! The host's memory, and a device.

use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_vm::memslot::{Hva, PAGE_SHIFT};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::sync::AtomicU64;
use mayfly_vm::stage2::{Level, MemoryType, Permissions};
use mayfly_vm::{Device, HostFault, HostMemory, Resolved};

/// The page at each address is in the frame of that number. Nothing reads it: the guest's exits are made up.
pub(crate) struct Memory {
    /// Whether all of it lies in blocks of 2 MiB.
    pub(crate) in_blocks: bool,
    /// Whether the guest may write what it only reads.
    pub(crate) writable: AtomicBool,
}

// SAFETY: nothing walks the tables: the guest's exits are made up, and it reads and writes nothing.
unsafe impl HostMemory<Hva> for Memory {
    #[unsafe(link_section = ".text.outside.memory")]
    #[inline(never)]
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        let mut allowed = wanted | Permissions::READ | Permissions::EXECUTE;
        allowed.set(
            Permissions::WRITE,
            wanted == Permissions::WRITE || self.writable.load(Ordering::Relaxed),
        );
        Ok(Resolved {
            pfn: Pfn::new(backing.get() >> PAGE_SHIFT),
            level: if self.in_blocks { Level::MIB2 } else { Level::PAGE },
            allowed,
            memory: MemoryType::WriteBack,
            clean: false,
            changed: false,
        })
    }

    #[unsafe(link_section = ".text.outside.memory")]
    fn linear_map(&self) -> *const AtomicU64 {
        // One to one, as the machine's.
        core::ptr::with_exposed_provenance(0)
    }
}

/// A device that answers.
pub(crate) struct Register;

impl Device for Register {
    #[unsafe(link_section = ".text.outside.device")]
    #[inline(never)]
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    #[unsafe(link_section = ".text.outside.device")]
    #[inline(never)]
    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {}
}
