//! A program without `unsafe` that makes the steps, and what has to be true of its VMs afterwards.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{
    AddressSpace, DirtyBitmap, Flags, Gfn, Gpa, Hva, PAGE_SHIFT, PAGE_SIZE, Region, SlotId,
};
use mayfly_vm::stage2::{Announcement, Ept, RootRef, Slice, Stage2, VmidTag, Vmids};
use mayfly_vm::testing::{Kinds, Machine};
use mayfly_vm::{Bus, Config, Device, SlotZap, Vcpu, Vm, World};

use crate::bus::Own;
use crate::deferral::Deferral;
use crate::devices::Boards;
use crate::formats::Other;
use crate::interrupts::Gics;
use crate::step::{Fate, PAGES, PIECES, PLACES, Step};

/// Frames of the machine on which nothing runs.
const ANOTHERS_FRAMES: usize = 32;

pub(crate) struct NoDevice;

impl Device for NoDevice {
    fn read(&self, _vcpu: u32, _offset: u64, _data: &mut [u8]) {}

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {}
}

/// A VM, and what the program has done to it that has no end.
pub(crate) struct Guarded {
    pub(crate) vm: Vm<Kinds>,
    /// Invalidations that have not ended, those that were forgotten included: slots do not change meanwhile.
    pub(crate) open: usize,
    /// A replacement of roots was forgotten: others would wait for it.
    pub(crate) is_stuck: bool,
}

pub(crate) struct Host {
    pub(crate) machine: Arc<Machine>,
    vmids: Vmids,
    pub(crate) pieces: [Hva; PIECES],
    /// Memory that no slot has.
    nobodys: Hva,
    pub(crate) vms: [Guarded; 2],
    /// Which VM each is of; none where that is destroyed.
    pub(crate) vcpus: Vec<(Option<usize>, Vcpu<Kinds>)>,
    pub(crate) announcements: Vec<(Option<usize>, Announcement)>,
    pub(crate) devices: Vec<Arc<Own>>,
    pub(crate) other: Other,
    /// Another machine, on which nothing runs.
    pub(crate) anothers: Machine,
    deferral: Deferral,
    gics: Gics,
    boards: Boards,
    roots: Vec<RootRef<Ept>>,
    tags: Vec<VmidTag>,
}

/// Whether `act` returns. Much of what is called wrongly panics.
pub(crate) fn returns(act: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_ok()
}

impl Host {
    pub(crate) fn new(machine: &Arc<Machine>) -> Self {
        let allocate = || machine.memory().allocate(PAGES).unwrap();
        let vms = [0, 1].map(|vm| Guarded::new(machine, vm));
        let pieces = std::array::from_fn(|_| allocate());
        Self {
            machine: Arc::clone(machine),
            vmids: machine.config().stage2.vmids,
            boards: Boards::new(pieces[PIECES - 1]),
            pieces,
            nobodys: allocate(),
            gics: Gics::new(vms.each_ref().map(|guarded| guarded.vm.clone())),
            vms,
            vcpus: Vec::new(),
            announcements: Vec::new(),
            devices: Vec::new(),
            other: Other::new(machine, allocate()),
            anothers: Machine::new(ANOTHERS_FRAMES),
            deferral: Deferral::new(machine),
            roots: Vec::new(),
            tags: Vec::new(),
        }
    }

    pub(crate) fn make(&mut self, step: &Step) {
        match *step {
            Step::Create { vm, slot, place, pages, piece, flags } => {
                let piece = if piece == vm { piece } else { PIECES - 1 };
                let gpa = Gpa::new(PLACES[place] << PAGE_SHIFT);
                let (backing, size) = (self.pieces[piece], pages * PAGE_SIZE);
                self.vms[vm].set(&Region { slot: SlotId::main(slot), flags, gpa, size, backing });
            }
            Step::Delete { vm, slot } => {
                if let Some(region) = self.vms[vm].region(slot) {
                    self.vms[vm].set(&Region { size: 0, ..region });
                }
            }
            Step::Move { vm, slot, place } => {
                if let Some(region) = self.vms[vm].region(slot) {
                    let gpa = Gpa::new((PLACES[place] + 1) << PAGE_SHIFT);
                    self.vms[vm].set(&Region { gpa, ..region });
                }
            }
            Step::AddVcpu { vm, id } => {
                let made = self.vms[vm].vm.create_vcpu(id);
                self.vcpus.extend(made.ok().map(|vcpu| (Some(vm), vcpu)));
            }
            Step::LoseVcpu { at, fate } => {
                if let Some((vm, vcpu)) = pick(&mut self.vcpus, at) {
                    match fate {
                        Fate::Dropped => drop(vcpu),
                        Fate::Kept => self.vcpus.push((vm, vcpu)),
                        Fate::Forgotten => forget(vcpu),
                    }
                }
            }
            Step::Run { at, ref accesses } => self.run(at, accesses),
            Step::Kick { vm, id } => drop(self.vms[vm].vm.kick(id)),
            Step::Invalidate { vm, piece, from, pages, change, fate } => {
                let from = Hva::new(self.pieces[piece].get() + from * PAGE_SIZE);
                let guarded = &mut self.vms[vm];
                let invalidation = guarded.vm.invalidate_start(from, pages * PAGE_SIZE, change);
                match fate {
                    Fate::Dropped => drop(invalidation),
                    Fate::Kept => {
                        self.announcements.push((Some(vm), invalidation.leave()));
                        guarded.open += 1;
                    }
                    Fate::Forgotten => {
                        forget(invalidation);
                        guarded.open += 1;
                    }
                }
            }
            Step::EndInvalidation { vm, at } => self.end_announced(vm, at, Vm::invalidate_end),
            Step::Release { vm } => self.vms[vm].close(Vm::release),
            Step::Destroy { vm } => self.destroy(vm),
            Step::Reclaim => drop(self.machine.reclaim()),
            Step::Tag { fate } => self.tag(fate),
            Step::Memory { vm, ref step } => self.make_on_memory(vm, step),
            Step::Roots { vm, place, pages, ref step } => {
                let gfns = Gfn::new(PLACES[place])..Gfn::new(PLACES[place] + pages);
                self.make_on_roots(vm, gfns, step);
            }
            Step::Bus { vm, ref step } => self.make_on_bus(vm, step),
            Step::RunOwn(ref step) => self.run_own(step),
            Step::Foreign(ref step) => self.make_foreign(step),
            Step::Defer(step) => self.deferral.make(step),
            Step::Interrupts { vm, ref steps } => self.gics.make(vm, steps),
            Step::Devices { vm, ref steps } => self.boards.make(vm, steps, &self.machine),
            _ => self.make_on_tables(step),
        }
    }

    fn make_on_tables(&mut self, step: &Step) {
        let slice = Slice::default();
        let gfns = |place: usize, pages| Gfn::new(PLACES[place])..Gfn::new(PLACES[place] + pages);
        match *step {
            Step::Zap { vm, at, place, pages, tables } => {
                if let Some((of, announcement)) = self.announced(at) {
                    let (stage2, gfns) = (self.stage2(vm), gfns(place, pages));
                    let zapped = returns(|| stage2.zap(announcement, gfns, tables, slice));
                    assert!(!zapped || *of == Some(vm), "another VM's announcement is believed");
                }
            }
            Step::Protect { vm, place, pages, panics } => {
                let each = |_, _| assert!(!panics, "as it was told to");
                returns(|| self.stage2(vm).write_protect(gfns(place, pages), slice, each));
            }
            Step::Age { vm, place, pages } => {
                self.stage2(vm).age(gfns(place, pages), slice, |_, _| ());
            }
            Step::Split { vm, place, pages } => {
                let _ = self.stage2(vm).split_blocks(gfns(place, pages), slice);
            }
            Step::TakeWritten { vm, place, panics } => {
                let meant = |_| {
                    assert!(!panics, "as it was told to");
                    true
                };
                let (stage2, gfns) = (self.stage2(vm), gfns(place, PAGES));
                returns(|| stage2.take_written_those(gfns, slice, meant, |_, _| ()));
            }
            Step::ReplaceRoots { vm, fate } => {
                if !cfg!(debug_assertions) && self.vms[vm].is_stuck {
                    return;
                }
                let mut forgotten = false;
                returns(|| {
                    if let Ok(retiring) = self.stage2(vm).replace_roots() {
                        match fate {
                            Fate::Dropped => drop(retiring),
                            Fate::Kept => {
                                retiring.wait_left();
                                retiring.finish();
                            }
                            Fate::Forgotten => {
                                forget(retiring);
                                forgotten = true;
                            }
                        }
                    }
                });
                self.vms[vm].is_stuck |= forgotten;
            }
            Step::Root { vm, role, fate } => {
                let section = self.vms[vm].vm.srcu().read_lock();
                let Ok(root) = self.stage2(vm).root(role, &section) else { return };
                drop(section);
                match fate {
                    Fate::Dropped => drop(root),
                    Fate::Kept => self.roots.push(root),
                    Fate::Forgotten => forget(root),
                }
            }
            Step::Translate { at, vm, place } => {
                if let Some(root) = self.roots.get(at % self.roots.len().max(1)) {
                    let section = self.vms[vm].vm.srcu().read_lock();
                    returns(|| _ = root.translate(Gfn::new(PLACES[place]), &section));
                    let _ = (self.vmids.assigned(root.tag()), root.frames());
                }
            }
            Step::LoseRoot { at } => drop(pick(&mut self.roots, at)),
            Step::RefuseFaults { vm, place } => self.stage2(vm).refuse_faults(&gfns(place, PAGES)),
            Step::ChangeNoSlots { vm, place, panics } => {
                let guarded = &self.vms[vm];
                if guarded.open == 0 {
                    let publish = || assert!(!panics, "as it was told to");
                    returns(|| guarded.vm.stage2().change_slots(&gfns(place, PAGES), publish));
                }
            }
            Step::Harvest { vm, slot } => {
                let mut words = [0];
                let _ = self.vms[vm].vm.harvest_dirty(SlotId::main(slot), 0, &mut words);
            }
            Step::Collapse { vm, slot } => {
                if self.vms[vm].open == 0 {
                    let _ = self.vms[vm].vm.collapse_pages(SlotId::main(slot));
                    // Also by a log that is no slot's.
                    let log = DirtyBitmap::try_new(1 << 12).unwrap();
                    (0..1 << 12).step_by(512).for_each(|page| log.mark(page));
                    let _ = self.vms[vm].vm.collapse_written(SlotId::main(slot), &log);
                }
            }
            Step::Register { vm, start, registers } => {
                let (vm, range) = (&self.vms[vm].vm, IoRange { start: start << 40, len: 8 });
                if registers {
                    drop(vm.register_device(Bus::Mmio, range, Arc::new(NoDevice)));
                } else {
                    drop(vm.unregister_device(Bus::Mmio, range));
                }
            }
            Step::CloseStage2 { vm } => self.vms[vm].close(|vm| vm.stage2().retire()),
            _ => unreachable!("it is made elsewhere"),
        }
    }

    /// Ends the announcement at `at` by `end`, if it is this VM's.
    pub(crate) fn end_announced(
        &mut self,
        vm: usize,
        at: usize,
        end: impl FnOnce(&Vm<Kinds>, Announcement) -> Result<(), Announcement>,
    ) {
        let Some((of, announcement)) = pick(&mut self.announcements, at) else { return };
        match end(&self.vms[vm].vm, announcement) {
            Ok(()) => {
                assert_eq!(of, Some(vm), "it has ended in another VM");
                self.vms[vm].open -= 1;
            }
            Err(announcement) => {
                assert_ne!(of, Some(vm), "it does not end in its own VM");
                self.announcements.push((of, announcement));
            }
        }
    }

    /// An announcement that is kept.
    pub(crate) fn announced(&self, at: usize) -> Option<&(Option<usize>, Announcement)> {
        self.announcements.get(at % self.announcements.len().max(1))
    }

    /// Whether a vCPU of the VM would wait for this thread.
    pub(crate) fn is_open(&self, vm: Option<usize>) -> bool {
        vm.is_none_or(|vm| self.vms[vm].open > 0)
    }

    fn stage2(&self, vm: usize) -> &Stage2<Ept> {
        self.vms[vm].vm.stage2()
    }

    /// Runs a guest. One whose host takes memory away would wait for the end, which this thread makes: it is kicked.
    fn run(&mut self, at: usize, accesses: &[mayfly_vm::testing::Step]) {
        let count = self.vcpus.len().max(1);
        let Some((vm, vcpu)) = self.vcpus.get_mut(at % count) else { return };
        if vm.is_none_or(|vm| self.vms[vm].open > 0) {
            vcpu.kicker().kick();
        }
        let mut guest = self.machine.guest(accesses);
        // A device may panic.
        returns(|| _ = vcpu.run(&mut guest));
    }

    fn tag(&mut self, fate: Fate) {
        // Of no vCPU.
        let _ = self.vmids.vcpu();
        let Ok(tag) = self.vmids.tag() else { return };
        assert_eq!(self.vmids.assigned(&tag), None, "it has run nowhere");
        match fate {
            Fate::Dropped => drop(tag),
            Fate::Kept => self.tags.push(tag),
            Fate::Forgotten => forget(tag),
        }
    }

    /// Destroys a VM, and puts another one in its place. What is left of the old one stays.
    fn destroy(&mut self, vm: usize) {
        let fresh = Guarded::new(&self.machine, vm);
        let old = std::mem::replace(&mut self.vms[vm], fresh);
        old.close(|vm| vm.clone().destroy());
        for of in self.vcpus.iter_mut().map(|(of, _)| of) {
            *of = of.filter(|of| *of != vm);
        }
        for of in self.announcements.iter_mut().map(|(of, _)| of) {
            *of = of.filter(|of| *of != vm);
        }
    }

    /// What every guest can reach is what its VM's slots and its host's memory say.
    pub(crate) fn check(&self) {
        for Guarded { vm, .. } in &self.vms {
            check(vm);
        }
        self.other.check();
    }

    /// No guest has written to memory that it never had, and what is begun anew works.
    pub(crate) fn end(mut self) {
        self.gics.end();
        self.boards.end(&self.machine);
        for device in &self.devices {
            device.end();
        }
        for word in (0..PAGES * PAGE_SIZE / 8).step_by(if cfg!(miri) { 512 } else { 1 }) {
            let word = Hva::new(self.nobodys.get() + word * 8);
            assert_eq!(self.machine.memory().word(word).load(Ordering::Relaxed), 0);
        }
    }
}

impl Guarded {
    /// The first VM has its slots zapped by ranges, and the second all roots replaced.
    fn new(machine: &Machine, vm: usize) -> Self {
        let slot_zap = [SlotZap::Range, SlotZap::AllRoots][vm];
        let vm = Vm::create(Config { slot_zap, ..machine.config() }).unwrap();
        Self { vm, open: 0, is_stuck: false }
    }

    fn region(&self, slot: u16) -> Option<Region<Hva>> {
        let section = self.vm.srcu().read_lock();
        let slots = self.vm.slots().load(AddressSpace::Main, &section);
        let slot = slots.slot(SlotId::main(slot))?;
        let gpa = Gpa::new(slot.base().get() << PAGE_SHIFT);
        let flags = slot.flags() & Flags::LOG_DIRTY_PAGES;
        Some(Region { slot: slot.id(), flags, gpa, size: slot.size(), backing: slot.backing() })
    }

    /// Sets a slot, unless that would wait for an invalidation, or a replacement of roots, of this thread's own.
    fn set(&self, region: &Region<Hva>) {
        if self.open == 0 && (cfg!(debug_assertions) || !self.is_stuck) {
            returns(|| _ = self.vm.set_memory_region(region));
        }
    }

    /// As [`Guarded::set`].
    fn close(&self, how: impl FnOnce(&Vm<Kinds>)) {
        if cfg!(debug_assertions) || !self.is_stuck {
            returns(|| how(&self.vm));
        }
    }
}

/// What the tables of `vm` map is what its slots say.
pub(crate) fn check<W: World<Backing = Hva>>(vm: &Vm<W>) {
    let section = vm.srcu().read_lock();
    let slots = vm.slots().load(AddressSpace::Main, &section);
    for root in vm.stage2().roots(&section) {
        for gfn in PLACES.into_iter().flat_map(|place| place..place + 2 * PAGES) {
            let gfn = Gfn::new(gfn);
            let Some((_, leaf)) = root.translate(gfn, &section) else { continue };
            let slot = slots.find(gfn).expect("something is mapped where no slot is");
            assert!(slot.contains(gfn), "another slot");
            let backing = slot.backing_of(gfn).unwrap();
            assert_eq!(leaf.pfn.get(), backing.get() >> PAGE_SHIFT, "another frame");
        }
    }
}

/// Takes out one of `all`, if there is one.
pub(crate) fn pick<T>(all: &mut Vec<T>, at: usize) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(at % all.len()))
}
