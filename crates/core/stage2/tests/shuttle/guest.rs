//! A vCPU: what its guest does, and how its faults are handled.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use mayfly_platform::tlb::Vmid;
use mayfly_srcu::Reader;
use mayfly_stage2::{Entry, Format, Level, Mapped, Role, Root, State, VcpuMark};

use crate::cpus::Translation;
use crate::host::{BLOCK, Host, PAGES};
use crate::model::granted::MapsAny;
use crate::model::{Resides, Tiny, gfn, gfns, readable, writable};
use crate::sharing::unshare;
use crate::{Machine, Vm};

pub(crate) struct Guest<const BREAK: bool> {
    mark: VcpuMark,
    resides: Resides,
    life: Life<BREAK>,
}

struct Life<const BREAK: bool> {
    cpu: usize,
    vm: Arc<Vm<BREAK>>,
    host: Arc<Host>,
    reader: Reader,
}

#[derive(Clone, Copy)]
struct Access {
    page: u64,
    write: bool,
}

impl Access {
    fn any() -> Self {
        // Few pages, so that guests meet.
        let page = [0, 1, 4, 5, 6, PAGES - 1][thread_rng().gen_range(0..6)];
        Self { page, write: thread_rng().gen_bool(0.5) }
    }
}

impl<const BREAK: bool> Guest<BREAK> {
    pub(crate) fn new(machine: &Machine<BREAK>, cpu: usize) -> Self {
        Self {
            mark: machine.vm.stage2.vcpu(),
            resides: Resides::new(&machine.vm),
            life: Life {
                cpu,
                vm: Arc::clone(&machine.vm),
                host: Arc::clone(&machine.host),
                reader: machine.vm.domain.reader().unwrap(),
            },
        }
    }

    /// Accesses so many pages, unless the VM is destroyed before.
    pub(crate) fn run(self, mut accesses: usize) {
        let Self { mark, mut resides, life } = self;
        let (vm, cpus) = (&life.vm, &life.vm.world.tlb);
        let mut access = Access::any();
        while accesses > 0 {
            let kicks = cpus.kicks();
            if vm.stage2.ensure_root(Role::MAIN).is_err() {
                return;
            }
            let stay = resides.enter(vm, |root| {
                // SAFETY: this thread has the CPU to itself.
                let vmid = unsafe { root.tag().activate(life.cpu as u32, mark) }.vmid;
                let mut faulted = false;
                if cpus.enter(life.cpu, kicks) {
                    while accesses > 0 && !faulted && cpus.serve(life.cpu) {
                        faulted = !life.access(vmid, root, access);
                        if !faulted {
                            access = Access::any();
                            accesses -= 1;
                        }
                    }
                    cpus.leave(life.cpu);
                }
                (vmid, faulted)
            });
            match stay {
                Some((_, false)) => {}
                Some((vmid, true)) => {
                    if !life.handle_fault(vmid, access) {
                        // There is no memory: some device's.
                        access = Access::any();
                        accesses -= 1;
                    }
                }
                None => thread::yield_now(),
            }
        }
    }
}

impl<const BREAK: bool> Life<BREAK> {
    /// In the guest: accesses memory by what the CPU remembers, or finds in the tables. Returns whether it could.
    fn access(&self, vmid: Vmid, root: &Root<Tiny<BREAK>>, access: Access) -> bool {
        let cpus = &self.vm.world.tlb;
        let mut translation = cpus.remembered(self.cpu, vmid, access.page);
        // A CPU may walk though it remembers.
        if (translation.is_none() || thread_rng().gen_bool(0.25))
            && let Some(found) = self.walk(vmid, root, access.page)
        {
            cpus.remember(self.cpu, found, BREAK);
            translation.get_or_insert(found);
        }
        match translation {
            Some(Translation { leaf, first, .. })
                if !access.write || leaf.permissions == writable(0).permissions =>
            {
                self.host.access(access.page, leaf.pfn.get() + access.page - first, access.write);
                true
            }
            _ => {
                if !Tiny::<BREAK>::KEEPS_FAULTING {
                    cpus.forget(self.cpu, vmid, access.page);
                }
                false
            }
        }
    }

    /// As hardware walks: with no regard for sections.
    fn walk(&self, vmid: Vmid, root: &Root<Tiny<BREAK>>, page: u64) -> Option<Translation> {
        let (mut table, mut level) = (root.top(), Tiny::<BREAK>::TOP);
        loop {
            let index = page / level.pages() % BLOCK;
            let bits = self.vm.world.arena.load(table, index as usize);
            let entry = Entry::<Tiny<BREAK>>::from_bits(bits);
            match entry.state(level) {
                State::Table(below) => (table, level) = (below, level.below().unwrap()),
                State::Leaf => {
                    let (leaf, first) = (entry.to_leaf(level), page - page % level.pages());
                    return leaf.accessed.then_some(Translation { vmid, level, first, leaf });
                }
                _ => return None,
            }
        }
    }

    /// Maps the page, or sometimes the block around it. Returns whether there is memory.
    fn handle_fault(&self, vmid: Vmid, Access { page, write }: Access) -> bool {
        let stage2 = &self.vm.stage2;
        let forget = || self.vm.world.tlb.forget(self.cpu, vmid, page);
        let mut as_block = thread_rng().gen_bool(0.5);
        loop {
            let section = self.reader.lock();
            let Some(root) = stage2.find_root(Role::MAIN, &section) else { return true };
            let wanted = if write { writable } else { readable }(0).permissions;
            if stage2.is_invalidating(&gfns(page, 1)) && root.settles(gfn(page), wanted, &section) {
                forget();
                return true;
            }
            let seen = stage2.sample();
            if !self.host.has_slot(page) {
                return false;
            }
            if write && self.host.is_shared(page) {
                unshare(&self.vm, &self.host, page);
            }
            let logging = self.host.logging.load(Ordering::Relaxed);
            if logging && write {
                self.host.mark_dirty(page);
            }
            let may_write = !logging && !self.host.is_shared(page) && thread_rng().gen_bool(0.5);
            let leaf = if write || may_write { writable } else { readable };
            let block = if as_block && !logging { self.host.block_pfn(page) } else { None };
            let (level, leaf) = match block {
                Some(first) => (Level::MIB2, leaf(first)),
                None => (Level::PAGE, leaf(self.host.pfn(page))),
            };
            match root.map(gfn(page), level, &leaf, seen, &section).unwrap() {
                Mapped::Installed => return true,
                Mapped::Relaxed | Mapped::Already => {
                    forget();
                    return true;
                }
                Mapped::TooLarge => as_block = false,
                Mapped::Retry => {
                    drop(section);
                    let pages = level.pages();
                    stage2.wait_invalidation(&gfns(page - page % pages, pages));
                }
            }
        }
    }
}
