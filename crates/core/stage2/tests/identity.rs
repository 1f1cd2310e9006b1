//! A hypervisor that has physical addresses mapped to themselves: frame 0 is at address 0.

#![cfg(not(any(mayfly_loom, mayfly_shuttle, miri)))]

mod granted;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeSet;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex};

use mayfly_platform::address::{Gfn, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::AtomicU64;
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Host, Layer};
use mayfly_srcu::Srcu;
use mayfly_stage2::{
    Arm, Config, Leaf, Level, Mapped, Permissions, Reclaimer, Role, Slice, Stage2, Vmids,
};

use granted::MapsAny;

/// Memory of the process, whose frames have the numbers of their addresses.
struct Flat {
    host: Host,
    given: Mutex<BTreeSet<u64>>,
}

fn layout(order: u32) -> Layout {
    let size = (PAGE_SIZE as usize) << order;
    Layout::from_size_align(size, size).unwrap()
}

// SAFETY: passes the calls that promise something on to the host.
unsafe impl Layer for Flat {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }
}

// SAFETY: the allocator's memory is one's at a time, zero, and aligned; the process reads it where its addresses say.
unsafe impl Frames for Flat {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(layout(order)) };
        let frame = memory.expose_provenance() as u64 >> PAGE_SHIFT;
        assert!(frame != 0 && self.given.lock().unwrap().insert(frame));
        Ok(Pfn::new(frame))
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        assert!(self.given.lock().unwrap().remove(&first.get()));
        let address = (first.get() << PAGE_SHIFT) as usize;
        // SAFETY: `allocate` gave it, with this order, and the caller gives it back once.
        unsafe { dealloc(with_exposed_provenance_mut(address), layout(order)) };
    }

    fn linear_map(&self) -> *const AtomicU64 {
        with_exposed_provenance(0)
    }
}

// SAFETY: nobody walks the tables but the core.
unsafe impl Tlb for Flat {
    fn issue(&self, _: Vmid, _: Scope) -> TlbToken {
        TlbToken(0)
    }

    fn complete(&self, _: TlbToken) {}

    fn invalidate_all_vmids(&self) {}
}

#[test]
fn tables_are_found_where_frame_0_is_at_address_0() {
    let flat = Arc::new(Flat { host: Host::new(), given: Mutex::default() });
    let srcu = Srcu::try_new(flat.clone(), mayfly_srcu::Config::default()).unwrap();
    let reclaimer = Arc::new(Reclaimer::<Arm<40>>::new(flat.clone(), usize::MAX));
    // SAFETY: the machine's only ones.
    let vmids = unsafe { Vmids::try_new(flat.clone(), 8) }.unwrap();
    let config =
        Config { mmu: flat.clone(), vmids, reclaimer: reclaimer.clone(), max_frames: usize::MAX };
    let stage2 = Stage2::try_new(config, &srcu).unwrap();
    {
        let section = srcu.read_lock();
        let root = stage2.root(Role::MAIN, &section).unwrap();
        let leaf = Leaf::new(Pfn::new(0x1234), Permissions::READ);
        let seen = stage2.sample();
        let mapped = root.map(Gfn::new(0x5678), Level::PAGE, &leaf, seen, &section).unwrap();
        assert_eq!(mapped, Mapped::Installed);
        let found = root.translate(Gfn::new(0x5678), &section);
        assert_eq!(found, Some((Level::PAGE, leaf)));
        assert_eq!(flat.given.lock().unwrap().len(), 3, "a root of two frames, and two tables");
    }
    let rung = reclaimer.rung().load(std::sync::atomic::Ordering::Acquire);
    stage2.retire();
    assert_ne!(reclaimer.rung().load(std::sync::atomic::Ordering::Acquire), rung);
    while reclaimer.run_slice(Slice::default()) != mayfly_stage2::Reclaimed::All {}
    assert_eq!(stage2.frames(), 0);
    assert_eq!(*flat.given.lock().unwrap(), BTreeSet::new());
}
