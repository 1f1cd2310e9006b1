//! vCPUs that turn their caches on and off at random, and write and read as far as somebody promises what they find,
//! while the host does to their memory what hosts do, and the VMM to their slots: one after the other, and some of it
//! with an access in the middle.
//!
//! Beside them goes a model that knows of each page only where its last value is: in both memory and caches, or in one
//! of them. It allows what has a promise, and no more: nobody reads, or writes to, the side that is behind.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_machine::address_space::{Backing, Protection};
use mayfly_machine::cache::{Lines, Moment};
use mayfly_machine::merger::{Merger, Run, Tunables};
use mayfly_machine::scenario::TableFormat;
use mayfly_machine::{
    Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, Program, VmOptions,
};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Op;
use mayfly_platform::cache::CacheCapabilities;
use mayfly_stage2::Slice;
use mayfly_vm::{Caches, Exit, SlotZap};
use proptest::prelude::*;

/// VMs of one host. They share no memory but what is merged, and the frames that one gives back and another gets.
const VMS: usize = 2;
/// vCPUs of each.
const VCPUS: usize = 3;
/// Slots of each.
const SLOTS: usize = 2;
/// Pages of each slot that anything happens to.
const PAGES: usize = 4;
/// Pages lie so far apart: two to a block.
const STRIDE: u64 = 1 << 20;
const SLOT: u64 = PAGES as u64 * STRIDE;
/// Where slots can begin: so many strides from 0 on, of which every other is a block's.
const BASES: u64 = 12;
/// How long something pauses for an access in its middle, where neither that comes to an end nor a fault is refused.
const PAUSE: Duration = Duration::from_millis(2);

/// One of a VM's vCPUs.
#[derive(Clone, Copy, Debug)]
struct Who {
    vm: usize,
    vcpu: usize,
}

/// A page, by its place in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    vm: usize,
    slot: usize,
    page: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(Access),
    HostWrites(Which),
    HostReads(Which),
    Changes(Change),
    Beside(Change, Middle),
}

/// What another processor does as the first frames are maintained for a change.
#[derive(Clone, Copy, Debug)]
struct Middle {
    /// Just before that, rather than just after.
    before: bool,
    access: Access,
    /// It writes, and then turns its caches off; or turns them on, and then reads.
    switches: bool,
}

/// By the vCPU of that number of the page's VM.
#[derive(Clone, Copy, Debug)]
struct Access {
    vcpu: usize,
    which: Which,
    write: bool,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Switch(Who),
    SetWay(Who),
    Replug(Who),
    Reset(Who),
    Migrate(Which),
    MigrateBlock(Which),
    Reclaim(Which),
    Remap(Which),
    Fork(Which),
    EndForks,
    Protect(Which),
    /// Of two pages that a vCPU makes equal before.
    Merge(Access, Which),
    Unmerge,
    /// To so many strides from 0 on; or there again, if it is not there.
    Place(Which, u64),
    Remove(Which),
    Log(Which),
    Harvest(Which),
    /// A vCPU reads, whatever it finds.
    Look(Access),
}

/// Mostly the first of `count`, so that much happens to the same.
fn first_of(count: usize) -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 1 => 1..count]
}

fn who() -> impl Strategy<Value = Who> {
    (first_of(VMS), 0..VCPUS).prop_map(|(vm, vcpu)| Who { vm, vcpu })
}

fn which() -> impl Strategy<Value = Which> {
    let parts = (first_of(VMS), first_of(SLOTS), 0..PAGES);
    parts.prop_map(|(vm, slot, page)| Which { vm, slot, page })
}

fn access() -> impl Strategy<Value = Access> {
    let parts = (0..VCPUS, which(), any::<bool>());
    parts.prop_map(|(vcpu, which, write)| Access { vcpu, which, write })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => who().prop_map(Change::Switch),
        2 => who().prop_map(Change::SetWay),
        1 => who().prop_map(Change::Replug),
        1 => who().prop_map(Change::Reset),
        2 => which().prop_map(Change::Migrate),
        1 => which().prop_map(Change::MigrateBlock),
        2 => which().prop_map(Change::Reclaim),
        2 => which().prop_map(Change::Remap),
        3 => which().prop_map(Change::Fork),
        1 => Just(Change::EndForks),
        2 => which().prop_map(Change::Protect),
        2 => (access(), which()).prop_map(|(access, with)| Change::Merge(access, with)),
        1 => Just(Change::Unmerge),
        5 => (which(), 0..BASES).prop_map(|(which, base)| Change::Place(which, base)),
        1 => which().prop_map(Change::Remove),
        2 => which().prop_map(Change::Log),
        2 => which().prop_map(Change::Harvest),
        10 => access().prop_map(Change::Look),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => access().prop_map(Step::Access),
        1 => which().prop_map(Step::HostWrites),
        1 => which().prop_map(Step::HostReads),
        4 => change().prop_map(Step::Changes),
        4 => beside(),
        2 => move_beside_write(),
    ]
}

/// Both are mostly about the same slot, or VM.
fn beside() -> impl Strategy<Value = Step> {
    let coin = prop::bool::weighted;
    let parts = (change(), any::<bool>(), access(), coin(0.7), coin(0.3));
    parts.prop_map(|(change, before, mut access, is_near, switches)| {
        if is_near {
            access.which = change.near(access.which);
        }
        Step::Beside(change, Middle { before, access, switches })
    })
}

/// A slot is mostly moved onto itself, and written where it was and is.
fn move_beside_write() -> impl Strategy<Value = Step> {
    let parts = (which(), 0..BASES / 2, any::<bool>(), 0..VCPUS, 0..PAGES);
    parts.prop_map(|(which, base, before, vcpu, page)| {
        let access = Access { vcpu, which: Which { page, ..which }, write: true };
        Step::Beside(Change::Place(which, base), Middle { before, access, switches: false })
    })
}

/// What a world is like.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a coin that is tossed")]
struct Nature {
    /// The first slots have memory of huge pages.
    huge: bool,
    all_roots: bool,
    /// Turning caches off is always seen; otherwise only after an operation by set and way.
    fgt: bool,
    coherent_swap: bool,
    /// Entries of a slice.
    slice: u32,
}

fn nature() -> impl Strategy<Value = Nature> {
    let slice = prop_oneof![Just(1), Just(Slice::default().entries)];
    let huge = prop::bool::weighted(0.3);
    (huge, any::<[bool; 3]>(), slice).prop_map(|(huge, [all_roots, fgt, coherent_swap], slice)| {
        Nature { huge, all_roots, fgt, coherent_swap, slice }
    })
}

/// Where the last value of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Both,
    Memory,
    Cache,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    place: Place,
    value: u64,
    /// A guest may have it, or what is around it, mapped; so that nobody cleans it when it is found the next time.
    mapped: bool,
    read_only: bool,
    /// Has been written since its log was last harvested.
    logged: bool,
}

struct Slot {
    memory: HostMemory,
    /// In strides.
    base: Option<u64>,
    logs: bool,
    pages: [Page; PAGES],
}

struct Player {
    vcpu: MachineVcpu<TableFormat>,
    cpu: Cpu<TableFormat>,
    on: bool,
}

struct Guests {
    players: Vec<Option<Player>>,
    slots: Vec<Slot>,
    vm: MachineVm<TableFormat>,
}

/// What is begun before maintenance, or after, by whoever comes there first.
type Armed = Arc<Mutex<Option<(bool, Box<dyn FnOnce() + Send>)>>>;

struct World {
    vms: Vec<Guests>,
    /// Where they are, and what they say.
    forks: Vec<(Hva, u64)>,
    merger: Merger,
    armed: Armed,
    nature: Nature,
    /// Writes past the caches.
    past: u64,
    number: u64,
    machine: Machine<TableFormat>,
}

impl World {
    fn new(nature: Nature) -> Self {
        let capabilities = CacheCapabilities { fgt: nature.fgt, ..CacheCapabilities::default() };
        let machine: Machine<TableFormat> =
            Machine::with_caches(1 << 14, Lines::Modelled, capabilities).unwrap();
        let armed = Armed::default();
        let in_the_middle = Arc::clone(&armed);
        let oracle = machine.hardware().arena().oracle().unwrap();
        oracle.at_maintenance(Box::new(move |moment, _, _| {
            let is_before = matches!(moment, Moment::BeforeClean | Moment::BeforeFlush);
            let access = in_the_middle.lock().unwrap().take_if(|(before, _)| *before == is_before);
            if let Some((_, access)) = access {
                access();
            }
        }));
        let vms = (0..VMS).map(|_| Guests::new(&machine, nature)).collect();
        let merger = Merger::new(Arc::clone(machine.space()));
        let (forks, past, number) = (Vec::new(), 0, 0);
        let mut world = Self { vms, forks, merger, armed, nature, past, number, machine };
        for (vm, slot) in (0..VMS).flat_map(|vm| (0..SLOTS).map(move |slot| (vm, slot))) {
            world.changes(Change::Place(Which { vm, slot, page: 0 }, slot as u64 * BASES / 2));
        }
        world
    }

    fn slot(&mut self, Which { vm, slot, .. }: Which) -> &mut Slot {
        &mut self.vms[vm].slots[slot]
    }

    fn page(&mut self, which: Which) -> &mut Page {
        &mut self.slot(which).pages[which.page]
    }

    fn hva(&self, which: Which) -> Hva {
        self.vms[which.vm].slots[which.slot].hva(which.page)
    }

    fn range(&self, which: Which) -> std::ops::Range<Hva> {
        let hva = self.hva(which);
        hva..Hva::new(hva.get() + PAGE_SIZE)
    }

    fn does(&mut self, step: Step) {
        self.number += 1;
        match step {
            Step::Access(access) => self.access(access),
            Step::HostWrites(which) => self.host_writes(which),
            Step::HostReads(which) => {
                let Page { place, value, .. } = *self.page(which);
                if place != Place::Memory {
                    let hva = self.hva(which);
                    assert_eq!(self.machine.space().read_u64(hva), Ok(value), "of {which:?}");
                }
            }
            Step::Changes(change) => self.changes(change),
            Step::Beside(change, middle) => self.beside(change, middle),
        }
    }

    /// What `access` is, if there is a promise for it; the model has it done then.
    fn allow(&mut self, Access { vcpu, which, write }: Access) -> Option<Instruction> {
        let mine = self.vms[which.vm].players[vcpu].as_ref()?.side();
        let number = self.number;
        let slot = self.slot(which);
        let gpa = slot.gpa(which.page)?;
        let page = &mut slot.pages[which.page];
        if ![Place::Both, mine].contains(&page.place) || write && page.read_only {
            return None;
        }
        let instruction = if write {
            (page.place, page.value, page.logged) = (mine, number, true);
            Instruction::Touch { gpa, len: 1, value: number }
        } else {
            Instruction::Verify { gpa, len: 1, value: page.value }
        };
        slot.maps_around(which.page);
        self.past += u64::from(write && mine == Place::Memory);
        Some(instruction)
    }

    fn host_writes(&mut self, which: Which) {
        let number = self.number;
        let page = self.page(which);
        if page.place == Place::Memory || page.read_only {
            return;
        }
        page.value = number;
        if page.mapped {
            page.place = Place::Cache;
        }
        let hva = self.hva(which);
        self.machine.space().write_u64(hva, number).unwrap();
    }

    /// Does `middle` in the middle of `change`, if that is promised to go well.
    fn beside(&mut self, change: Change, Middle { before, access, switches }: Middle) {
        let Access { vcpu, which, write } = access;
        // So that there is something to maintain, and TLBs have it.
        let written = change.about().unwrap_or(which);
        for vcpu in 0..VCPUS {
            self.access(Access { vcpu, which: written, write: true });
        }
        if let Change::Look(look) = change {
            // Nobody has it mapped, and so it is cleaned.
            self.changes(Change::Migrate(look.which));
        }
        self.number += 1;
        let page = *self.page(which);
        let base = match change {
            Change::Place(other, base) if other.is_beside(which) && self.can_place(other, base) => {
                Some(base)
            }
            _ => self.slot(which).base,
        };
        let (Some(base), Some(old)) = (base, self.slot(which).base) else { return };
        // What was there, where the slot moves onto itself: it may be written until it is zapped.
        let there = (base + which.page as u64).checked_sub(old).map(|page| page as usize);
        let there = there.filter(|&page| page < PAGES && page != which.page);
        let there = there.map(|page| Which { page, ..which });
        let others = there.map(|there| *self.page(there));
        let Some(player) = self.vms[which.vm].players[vcpu].take_if(|player| {
            let write = if switches { player.on } else { write };
            let promises = |page: Page| {
                [Place::Both, player.side()].contains(&page.place) && !(write && page.read_only)
            };
            promises(page)
                && others.is_none_or(|other| !switches && write && promises(other))
                && !change.forbids(Access { write, ..access })
                // What it writes may come before or after the switch.
                && !(switches && matches!(change, Change::Merge(..)))
        }) else {
            return self.changes(change);
        };
        let side = player.side();
        let write = if switches { player.on } else { write };
        let gpa = Gpa::new(base * STRIDE + Slot::offset(which.page));
        let mut program = vec![if write {
            Instruction::Touch { gpa, len: 1, value: self.number }
        } else {
            Instruction::Verify { gpa, len: 1, value: page.value }
        }];
        if switches {
            let turn = self.turn(!player.on);
            let at = usize::from(player.on);
            program.splice(at..at, turn);
        }
        let player = self.arm(before, player, program);
        self.changes(change);
        // If nobody came to the moment.
        let left = self.armed.lock().unwrap().take();
        if let Some((_, begin)) = left {
            begin();
        }
        let mut player = player.recv().unwrap();
        player.on ^= switches;
        self.vms[which.vm].players[vcpu] = Some(player);
        let number = self.number;
        let slot = self.slot(which);
        slot.maps_around(which.page);
        if write {
            // It may be flushed once between its fault and the write.
            self.past += 2 * u64::from(side == Place::Memory);
            // Once it is zapped, the host finds whatever a guest has written there.
            if let Some(there) = there
                && self.machine.space().read_u64(self.hva(there)) == Ok(number)
            {
                let page = self.page(there);
                (page.value, page.logged) = (number, true);
                return;
            }
            let page = self.page(which);
            (page.place, page.value, page.logged) = (side, number, true);
        }
        if switches {
            self.agree(which.vm, Place::Memory);
            if side == Place::Cache {
                self.agree(which.vm, Place::Cache);
            }
        }
    }

    /// How a guest turns its caches on, or off.
    fn turn(&self, on: bool) -> Program {
        let prepares = (!on && !self.nature.fgt).then_some(Instruction::SetWay);
        prepares.into_iter().chain([Instruction::Caches(on)]).collect()
    }

    /// Has `player` do that, on a thread of its own, just before or after the next maintenance, which goes on when it
    /// is done, or a fault was refused and waits. Gives the player back.
    fn arm(&self, before: bool, mut player: Player, does: Program) -> Receiver<Player> {
        let (give, back) = channel();
        let hardware = Arc::clone(self.machine.hardware());
        let begin = Box::new(move || {
            let refused = hardware.charged(Op::FaultRefused);
            let running = thread::spawn(move || {
                player.run(does);
                let _ = give.send(player);
            });
            let begun = Instant::now();
            while !running.is_finished()
                && hardware.charged(Op::FaultRefused) == refused
                && begun.elapsed() < PAUSE
            {
                thread::yield_now();
            }
        });
        *self.armed.lock().unwrap() = Some((before, begin));
        back
    }

    fn changes(&mut self, change: Change) {
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
                    self.set_slot(which, SLOT);
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

    fn changes_vcpu(&mut self, change: Change, who: Who) {
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

    fn changes_host(&mut self, change: Change) {
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

    fn access(&mut self, access: Access) {
        if let Some(instruction) = self.allow(access) {
            let Access { which: Which { vm, .. }, vcpu, .. } = access;
            self.player(Who { vm, vcpu }).run(vec![instruction]);
        }
    }

    fn harvest(&mut self, which: Which) {
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
        }
    }

    /// Everybody reads all that may be read, with caches as they are, and then on.
    fn ends(&mut self) {
        self.everybody_reads();
        for who in (0..VMS).flat_map(|vm| (0..VCPUS).map(move |vcpu| Who { vm, vcpu })) {
            if !self.player(who).on {
                self.changes(Change::Switch(who));
            }
        }
        self.everybody_reads();
        self.end_forks();
    }

    fn everybody_reads(&mut self) {
        for vm in 0..VMS {
            for (slot, page) in (0..SLOTS).flat_map(|slot| (0..PAGES).map(move |page| (slot, page)))
            {
                let which = Which { vm, slot, page };
                self.does(Step::HostReads(which));
                for vcpu in 0..VCPUS {
                    self.access(Access { vcpu, which, write: false });
                }
            }
        }
    }

    fn end_forks(&mut self) {
        let space = self.machine.space();
        for (fork, value) in self.forks.drain(..) {
            assert_eq!(space.read_u64(fork), Ok(value));
            space.munmap(fork..Hva::new(fork.get() + PAGE_SIZE)).unwrap();
        }
    }

    fn player(&mut self, Who { vm, vcpu }: Who) -> &mut Player {
        self.vms[vm].players[vcpu].as_mut().expect("only one that nothing else is asked of is away")
    }

    /// What a vCPU that switches has brought about for all of its VM.
    fn agree(&mut self, vm: usize, from: Place) {
        for slot in &mut self.vms[vm].slots {
            slot.pages.iter_mut().for_each(|page| page.agrees(from));
        }
    }

    /// No other slot is in its way.
    fn can_place(&self, which: Which, base: u64) -> bool {
        let mut slots = self.vms[which.vm].slots.iter().enumerate();
        let ends = |other: u64| other + PAGES as u64;
        slots.all(|(number, slot)| {
            number == which.slot
                || slot.base.is_none_or(|other| base >= ends(other) || other >= ends(base))
        })
    }

    fn set_slot(&self, Which { vm, slot, .. }: Which, size: u64) {
        let Guests { vm, slots, .. } = &self.vms[vm];
        let Slot { memory, base, logs, .. } = &slots[slot];
        let gpa = Gpa::new(base.unwrap_or(0) * STRIDE);
        let mut region = Region { size, ..memory.region(SlotId::main(slot as u16), gpa) };
        region.flags.set(Flags::LOG_DIRTY_PAGES, *logs && size > 0);
        vm.set_memory_region(&region).unwrap();
    }

    /// A slot has gone from where it was.
    fn is_zapped(&mut self, which: Which) {
        let all = self.nature.all_roots;
        for (number, slot) in self.vms[which.vm].slots.iter_mut().enumerate() {
            if all || number == which.slot {
                slot.pages.iter_mut().for_each(Page::is_gone);
            }
        }
    }
}

impl Change {
    /// The page that it is about, if it is about any.
    fn about(self) -> Option<Which> {
        match self {
            Self::Migrate(which)
            | Self::MigrateBlock(which)
            | Self::Reclaim(which)
            | Self::Remap(which)
            | Self::Fork(which)
            | Self::Protect(which)
            | Self::Place(which, _)
            | Self::Remove(which)
            | Self::Log(which)
            | Self::Harvest(which) => Some(which),
            _ => None,
        }
    }

    /// What is as near to it as can be, or else `which`.
    fn near(self, which: Which) -> Which {
        match self {
            Self::Switch(Who { vm, .. })
            | Self::SetWay(Who { vm, .. })
            | Self::Replug(Who { vm, .. })
            | Self::Reset(Who { vm, .. }) => Which { vm, ..which },
            Self::Look(access) => access.which,
            _ => Which { page: which.page, ..self.about().unwrap_or(which) },
        }
    }

    /// Whether `access` cannot be made in its middle, or the model cannot tell what comes of it.
    fn forbids(self, access: Access) -> bool {
        let Access { vcpu, which, write } = access;
        match self {
            // The vCPU cannot do both.
            Self::Switch(who) | Self::SetWay(who) | Self::Replug(who) | Self::Reset(who) => {
                (who.vm, who.vcpu) == (which.vm, vcpu)
            }
            Self::Look(access) => (access.which.vm, access.vcpu) == (which.vm, vcpu),
            Self::Merge(first, with) => first.vcpu == vcpu || [first.which, with].contains(&which),
            // It is not there, or may not be written.
            Self::Remove(other) => other.is_beside(which),
            Self::Remap(other) => other == which,
            Self::Protect(other) => write && other == which,
            // Before or after.
            Self::Log(other) | Self::Harvest(other) => write && other.is_beside(which),
            _ => false,
        }
    }
}

impl Which {
    /// Whether it is in the same slot.
    fn is_beside(self, other: Self) -> bool {
        (self.vm, self.slot) == (other.vm, other.slot)
    }
}

impl Page {
    /// Nobody has it mapped any more: who finds it next has it cleaned.
    fn is_gone(&mut self) {
        (self.place, self.mapped) = (Place::Both, false);
    }

    fn agrees(&mut self, from: Place) {
        if self.place == from {
            self.place = Place::Both;
        }
    }
}

impl Slot {
    fn new(machine: &Machine<TableFormat>, huge: bool) -> Self {
        let backing = if huge { Backing::HugePages } else { Backing::Pages };
        let memory = machine.map_backed(SLOT, backing).unwrap();
        let page =
            Page { place: Place::Both, value: 0, mapped: false, read_only: false, logged: false };
        Self { memory, base: None, logs: false, pages: [page; PAGES] }
    }

    fn offset(page: usize) -> u64 {
        page as u64 * STRIDE
    }

    fn hva(&self, page: usize) -> Hva {
        Hva::new(self.memory.hva().get() + Self::offset(page))
    }

    fn gpa(&self, page: usize) -> Option<Gpa> {
        Some(Gpa::new(self.base? * STRIDE + Self::offset(page)))
    }

    /// As much as may be mapped when `page` is.
    fn maps_around(&mut self, page: usize) {
        let first = page / 2 * 2;
        self.pages[first..first + 2].iter_mut().for_each(|page| page.mapped = true);
    }
}

impl Player {
    /// As it comes out of reset.
    fn new(machine: &Machine<TableFormat>, vm: &MachineVm<TableFormat>, id: usize) -> Self {
        let vcpu = vm.create_vcpu(id as u32).unwrap();
        let mut cpu = machine.cpu(Vec::new());
        cpu.turn_caches_off();
        Self { vcpu, cpu, on: false }
    }

    /// What it reads, and writes to.
    fn side(&self) -> Place {
        if self.on { Place::Cache } else { Place::Memory }
    }

    fn run(&mut self, program: Program) {
        self.cpu.load(program);
        assert_eq!(self.vcpu.run(&mut self.cpu), Exit::Halt);
        assert_eq!(self.cpu.first_mismatch(), None);
    }
}

impl Guests {
    fn new(machine: &Machine<TableFormat>, nature: Nature) -> Self {
        let options = VmOptions {
            caches: Caches::Tracked,
            slot_zap: if nature.all_roots { SlotZap::AllRoots } else { SlotZap::Range },
            coherent_swap: nature.coherent_swap,
            slice: Slice { entries: nature.slice, ..Slice::default() },
            ..VmOptions::default()
        };
        let vm = machine.create_vm_with(options).unwrap();
        let slots = (0..SLOTS).map(|slot| Slot::new(machine, nature.huge && slot == 0)).collect();
        let players = (0..VCPUS).map(|id| Some(Player::new(machine, &vm, id))).collect();
        Self { players, slots, vm }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(72))]

    #[test]
    fn a_vcpu_finds_what_was_written_last_wherever_that_is_promised(
        nature in nature(),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        let mut world = World::new(nature);
        for step in steps {
            world.does(step);
        }
        world.ends();
        let flushed = world.machine.cache().lines().flushed;
        prop_assert!(flushed <= 64 * world.past, "no more is flushed than was written");
    }
}
