//! What the host does to memory, and the VMM to slots and vCPUs.

use mayfly_machine::Instruction;
use mayfly_machine::address_space::Protection;
use mayfly_machine::merger::{Run, Tunables};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};

use crate::guests::{Guests, Page, Place, Player, Slot};
use crate::steps::{Access, Change, PAGES, SLOT, STRIDE, Which, Who};
use crate::world::World;

impl World {
    pub(crate) fn changes(&mut self, change: Change) {
        match change {
            Change::Switch(who)
            | Change::SetWay(who)
            | Change::Replug(who)
            | Change::Reset(who) => self.changes_vcpu(change, who),
            Change::Place(which, base) => {
                if self.can_place(which, base) {
                    let old = self.slot(which).base.replace(base);
                    self.set_slot(which, SLOT);
                    if old.is_some_and(|old| old != base) {
                        self.is_zapped(which);
                    }
                }
            }
            Change::Remove(which) => {
                if self.slot(which).base.is_some() {
                    self.set_slot(which, 0);
                    self.is_zapped(which);
                    let slot = self.slot(which);
                    (slot.base, slot.logs) = (None, false);
                }
            }
            Change::Log(which) => {
                let slot = self.slot(which);
                if slot.base.is_some() {
                    slot.logs = !slot.logs;
                    slot.pages.iter_mut().for_each(|page| page.logged = false);
                    let logs = slot.logs;
                    self.set_slot(which, SLOT);
                    if logs {
                        // What is copied first needs no mark, and what is written from now on has one.
                        for page in &mut self.slot(which).pages {
                            page.agrees(Place::Memory);
                        }
                        self.host_reads_slot(which);
                    }
                }
            }
            Change::Harvest(which) => self.harvest(which),
            Change::Look(Access { which, vcpu, .. }) => {
                if let Some(gpa) = self.slot(which).gpa(which.page) {
                    self.slot(which).maps_around(which.page);
                    let look = Instruction::ReadMmio { gpa, len: 8 };
                    self.player(Who { vm: which.vm, vcpu }).run(vec![look]);
                }
            }
            _ => self.changes_host(change),
        }
    }

    pub(crate) fn changes_vcpu(&mut self, change: Change, who: Who) {
        match change {
            Change::SetWay(_) => {
                self.player(who).run(vec![Instruction::SetWay]);
                if self.player(who).on {
                    self.agree(who.vm, Place::Memory);
                    self.agree(who.vm, Place::Cache);
                }
            }
            Change::Replug(Who { vm, vcpu }) => {
                // Its number is free when it is gone.
                self.vms[vm].players[vcpu] = None;
                self.vms[vm].players[vcpu] =
                    Some(Player::new(&self.machine, &self.vms[vm].vm, vcpu));
            }
            Change::Reset(_) => {
                let player = self.player(who);
                player.vcpu.reset_caches();
                player.cpu.turn_caches_off();
                if std::mem::take(&mut player.on) {
                    self.agree(who.vm, Place::Memory);
                    self.agree(who.vm, Place::Cache);
                }
            }
            _ => {
                let on = !self.player(who).on;
                self.player(who).on = on;
                let program = self.turn(on);
                self.player(who).run(program);
                self.agree(who.vm, Place::Memory);
                if !on {
                    self.agree(who.vm, Place::Cache);
                }
            }
        }
    }

    pub(crate) fn changes_host(&mut self, change: Change) {
        match change {
            Change::Migrate(which) => {
                let hva = self.hva(which);
                if self.machine.space().migrate(hva).unwrap() {
                    self.page(which).is_gone();
                }
            }
            Change::MigrateBlock(which) => {
                let first = which.page / 2 * 2;
                let start = self.hva(Which { page: first, ..which }).get() / STRIDE * STRIDE;
                let block = Hva::new(start)..Hva::new(start + 2 * STRIDE);
                self.machine.space().migrate_range(block).unwrap();
                self.slot(which).pages[first..first + 2].iter_mut().for_each(Page::is_gone);
            }
            Change::Reclaim(which) => {
                let hva = self.hva(which);
                if self.machine.space().reclaim(hva) {
                    self.page(which).is_gone();
                }
            }
            Change::Remap(which) => {
                let (range, value) = (self.range(which), self.page(which).value);
                let space = self.machine.space();
                let away = space.mremap(range.clone(), None).unwrap();
                assert_eq!(space.read_u64(away), Ok(value), "of {which:?}, elsewhere");
                let end = Hva::new(away.get() + PAGE_SIZE);
                space.mremap(away..end, Some(range.start)).unwrap();
                self.page(which).is_gone();
            }
            Change::Fork(which) => {
                let (range, value) = (self.range(which), self.page(which).value);
                let fork = self.machine.space().fork(range).unwrap();
                self.forks.push((fork, value));
                self.page(which).agrees(Place::Memory);
            }
            Change::EndForks => self.end_forks(),
            Change::Protect(which) => {
                let (range, page) = (self.range(which), self.page(which));
                page.read_only = !page.read_only;
                let protection =
                    if page.read_only { Protection::ReadOnly } else { Protection::ReadWrite };
                if page.read_only {
                    page.agrees(Place::Memory);
                }
                self.machine.space().mprotect(range, protection).unwrap();
            }
            Change::Merge(access, with) => {
                for which in [access.which, with] {
                    self.access(Access { which, write: true, ..access });
                    let range = self.range(which);
                    self.merger.register(range).unwrap();
                }
                // Whatever else was equal is merged as well. A page is looked at twice before.
                for _ in 0..3 {
                    self.merger.scan_all();
                }
            }
            Change::Unmerge => {
                self.merger.set(Tunables { run: Run::Unmerge, ..Tunables::default() }).unwrap();
            }
            _ => unreachable!("not the host's: {change:?}"),
        }
    }

    pub(crate) fn harvest(&mut self, which: Which) {
        let Which { vm, slot, .. } = which;
        if !self.slot(which).logs {
            return;
        }
        let mut log = [0_u64; (SLOT / PAGE_SIZE / 64) as usize];
        self.vms[vm].vm.harvest_dirty(SlotId::main(slot as u16), 0, &mut log).unwrap();
        for (number, page) in self.slot(which).pages.iter_mut().enumerate() {
            let at = Slot::offset(number) / PAGE_SIZE;
            let is_marked = log[at as usize / 64] & 1 << (at % 64) != 0;
            assert!(is_marked || !page.logged, "{page:?}, number {number} of {which:?}");
            page.logged = false;
            if is_marked {
                page.agrees(Place::Memory);
            }
        }
        self.host_reads_slot(which);
    }

    /// As one does who copies it elsewhere; but for what somebody may be writing at the moment.
    fn host_reads_slot(&mut self, which: Which) {
        for page in 0..PAGES {
            let which = Which { page, ..which };
            if !self.beside.contains(&which) {
                self.host_reads(which);
            }
        }
    }

    /// No other slot is in its way.
    pub(crate) fn can_place(&self, which: Which, base: u64) -> bool {
        let mut slots = self.vms[which.vm].slots.iter().enumerate();
        let ends = |other: u64| other + PAGES as u64;
        slots.all(|(number, slot)| {
            number == which.slot
                || slot.base.is_none_or(|other| base >= ends(other) || other >= ends(base))
        })
    }

    pub(crate) fn set_slot(&self, Which { vm, slot, .. }: Which, size: u64) {
        let Guests { vm, slots, .. } = &self.vms[vm];
        let Slot { memory, base, logs, .. } = &slots[slot];
        let gpa = Gpa::new(base.unwrap_or(0) * STRIDE);
        let mut region = Region { size, ..memory.region(SlotId::main(slot as u16), gpa) };
        region.flags.set(Flags::LOG_DIRTY_PAGES, *logs && size > 0);
        vm.set_memory_region(&region).unwrap();
    }

    /// A slot has gone from where it was.
    pub(crate) fn is_zapped(&mut self, which: Which) {
        let all = self.nature.all_roots;
        for (number, slot) in self.vms[which.vm].slots.iter_mut().enumerate() {
            if all || number == which.slot {
                slot.pages.iter_mut().for_each(Page::is_gone);
            }
        }
    }
}
