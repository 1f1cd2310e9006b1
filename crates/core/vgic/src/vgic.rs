//! The interrupts of a VM, and the one way to change one.
//!
//! `vgic.rs` and `cpu.rs` import each other: a GIC hands out the CPU interface of a vCPU, and that interface is the
//! GIC's state between the entry of a guest and its exit.

use alloc::boxed::Box;

use mayfly_platform::sync::{AtomicU32, AtomicU64, CacheLine, Ordering};

use crate::affinity::{self, MAX_VCPUS};
use crate::collect::{try_collect, try_fill};
use crate::inbox::Inbox;
use crate::its::control::LpiControl;
use crate::its::tables::{Its, ItsConfig};
use crate::state::{FIRST_LPI, State};
use crate::{CpuInterface, Error, MAX_LIST_REGISTERS, MAX_SPIS};

/// SGIs and PPIs: a vCPU's own.
pub(crate) const PRIVATE: u32 = 32;
const SGIS: u32 = 16;
pub(crate) const ALL_GROUPS: u32 = 3;

/// For how many vCPUs, or SPIs, a method does something before it calls the `pause` that it was given.
pub const PART: usize = 8;

/// How a vCPU is told that there is something new for it.
pub trait Kick {
    /// Has vCPU `vcpu` come out of its guest if it is in it, and wakes it if it sleeps in a WFI. It then looks at
    /// [`Vgic::is_stale`] before it goes into its guest, and at [`Vgic::is_pending`] before it sleeps.
    ///
    /// Called by the thread that injects, or changes a register, with no lock of this crate's held; from interrupt
    /// handlers, if they inject. It does not wait for the vCPU. May be called for a vCPU that is not running, and for
    /// the caller's own.
    fn kick(&self, vcpu: usize);
}

impl<F: Fn(usize)> Kick for F {
    fn kick(&self, vcpu: usize) {
        self(vcpu);
    }
}

/// What a GIC has.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// How many vCPUs: 1 to [`MAX_VCPUS`].
    pub vcpus: usize,
    /// How many SPIs, at most [`MAX_SPIS`]. What the guest is told is a multiple of 32; those above read as zero. A
    /// guest writes registers for each that it is told of, each of which is an exit.
    pub spis: usize,
    /// How many list registers the CPUs have: `ICH_VTR_EL2.ListRegs` plus 1, the fewest of all.
    pub list_registers: usize,
    /// PPIs of the guest that are linked to physical interrupts, each with that number: the virtual timer's, 27 to 27.
    /// The guest's deactivation of such a one deactivates the physical one without an exit.
    pub linked: &'a [(u32, u32)],
}

/// What belongs to a vCPU. Its state is written by itself mostly, and lies on lines of its own.
#[derive(Debug)]
pub(crate) struct Redistributor {
    pub(crate) interrupts: [AtomicU64; PRIVATE as usize],
    pub(crate) inbox: Inbox,
    /// `GICR_WAKER.ProcessorSleep`. Clear after reset, as firmware leaves it: guests that begin behind firmware rely on
    /// that, and KVM's never sleep (`GICR_WAKER` reads as zero in `arch/arm64/kvm/vgic/vgic-mmio-v3.c`).
    pub(crate) asleep: AtomicU32,
    /// The register whose true state this vCPU has asked for when it last read one, plus 1.
    pub(crate) asked: AtomicU64,
    pub(crate) lpis: LpiControl,
}

/// The `GICv3` of one VM: a distributor, and a redistributor a vCPU. Shared by all vCPUs, and by all that inject; no
/// method waits.
#[derive(Debug)]
pub struct Vgic<K> {
    pub(crate) redistributors: Box<[CacheLine<Redistributor>]>,
    pub(crate) spis: Box<[AtomicU64]>,
    /// None without an ITS.
    pub(crate) lpis: Box<[AtomicU64]>,
    pub(crate) its: Option<Its>,
    /// The enables of groups 0 and 1 of `GICD_CTLR`.
    pub(crate) groups: AtomicU32,
    /// How many words are recalled, so that a reader of `RWP` need not look at all. Each is counted before its word
    /// says so, and no more after that: counted later, one that is folded at once would take another's place.
    pub(crate) recalled: AtomicU32,
    pub(crate) list_registers: usize,
    /// The physical interrupt that each PPI is linked to, or 0.
    pub(crate) links: [u16; PRIVATE as usize],
    pub(crate) kick: K,
}

/// Calls `work` with each number below `count`, which are of vCPUs or SPIs, and `pause` after each [`PART`] of them.
pub(crate) fn in_parts(count: usize, pause: &mut dyn FnMut(), mut work: impl FnMut(usize)) {
    for number in 0..count {
        work(number);
        if number % PART == PART - 1 {
            pause();
        }
    }
}

fn links(linked: &[(u32, u32)]) -> Result<[u16; PRIVATE as usize], Error> {
    let mut links = [0; PRIVATE as usize];
    for &(ppi, physical) in linked {
        let fits = (SGIS..PRIVATE).contains(&ppi) && (SGIS..1020).contains(&physical);
        if !fits || links[ppi as usize] != 0 {
            return Err(Error::Link { ppi, physical });
        }
        links[ppi as usize] = physical as u16;
    }
    Ok(links)
}

impl<K: Kick> Vgic<K> {
    /// A GIC as firmware leaves it: nothing is enabled, and every redistributor is awake.
    ///
    /// # Errors
    ///
    /// [`Error`] says which number is out of bounds; or there is no memory.
    pub fn try_new(config: Config<'_>, kick: K) -> Result<Self, Error> {
        Self::try_with_pauses(config, None, kick, &mut || ())
    }

    /// The same with LPIs, and an ITS that is turned off.
    ///
    /// # Errors
    ///
    /// As for [`Vgic::try_new`].
    pub fn try_with_its(config: Config<'_>, its: ItsConfig, kick: K) -> Result<Self, Error> {
        Self::try_with_pauses(config, Some(its), kick, &mut || ())
    }

    /// The same, with an ITS or without one: calls `pause` after each [`PART`] vCPUs, since to make a GIC for many
    /// is long work. There a caller that has interrupts masked may look for them.
    ///
    /// # Errors
    ///
    /// As for [`Vgic::try_new`].
    pub fn try_with_pauses(
        config: Config<'_>,
        its: Option<ItsConfig>,
        kick: K,
        pause: &mut dyn FnMut(),
    ) -> Result<Self, Error> {
        let Config { vcpus, spis, list_registers, linked } = config;
        if !(1..=MAX_VCPUS).contains(&vcpus) {
            return Err(Error::Vcpus(vcpus));
        }
        if spis > MAX_SPIS {
            return Err(Error::Spis(spis));
        }
        if !(1..=MAX_LIST_REGISTERS).contains(&list_registers) {
            return Err(Error::ListRegisters(list_registers));
        }
        let links = links(linked)?;
        let its = its.map(|its| Its::try_new(its, vcpus)).transpose()?;
        let lpis = its.as_ref().map_or(0, |its| its.config.lpis);
        // As `reset` leaves it, in one pass: a VM waits for this, and a VM of many vCPUs has many words.
        let private =
            |intid: usize| AtomicU64::new(State::reset(intid < SGIS as usize, links[intid] != 0).0);
        Ok(Self {
            redistributors: try_collect(vcpus, |vcpu| {
                if vcpu % PART == PART - 1 {
                    pause();
                }
                Ok(CacheLine(Redistributor {
                    interrupts: core::array::from_fn(private),
                    inbox: Inbox::try_full(PRIVATE as usize + spis, lpis)?,
                    asleep: AtomicU32::new(0),
                    asked: AtomicU64::new(0),
                    lpis: LpiControl::default(),
                }))
            })?,
            spis: try_fill(spis, |_| AtomicU64::new(State::reset(false, false).0))?,
            lpis: try_fill(lpis, |_| AtomicU64::new(State::reset_lpi().0))?,
            its,
            groups: AtomicU32::new(0),
            recalled: AtomicU32::new(0),
            list_registers,
            links,
            kick,
        })
    }

    /// As after power-on, for a VM that begins anew: only while no vCPU is between [`Vgic::enter`] and
    /// [`Vgic::leave`], and no other thread uses it. Lines stay as they were driven, but for those of linked PPIs, which
    /// are taken anew. Each vCPU takes a new [`Vgic::cpu_interface`].
    pub fn reset(&self) {
        self.groups.store(0, Ordering::Relaxed);
        self.recalled.store(0, Ordering::Relaxed);
        for redistributor in &*self.redistributors {
            for (intid, word) in redistributor.interrupts.iter().enumerate() {
                let hardware = self.links[intid] != 0;
                let line = !hardware && State(word.load(Ordering::Relaxed)).is_high();
                let state = State::reset(intid < SGIS as usize, hardware).with_line(line);
                word.store(state.0, Ordering::Relaxed);
            }
            redistributor.asleep.store(0, Ordering::Relaxed);
            redistributor.asked.store(0, Ordering::Relaxed);
            redistributor.inbox.put_all();
            redistributor.lpis.reset();
        }
        for word in &*self.spis {
            let line = State(word.load(Ordering::Relaxed)).is_high();
            word.store(State::reset(false, false).with_line(line).0, Ordering::Relaxed);
        }
        for word in &*self.lpis {
            word.store(State::reset_lpi().0, Ordering::Relaxed);
        }
        if let Some(its) = &self.its {
            its.reset();
        }
    }

    /// How many vCPUs it has.
    pub fn vcpus(&self) -> usize {
        self.redistributors.len()
    }

    /// How many SPIs it has.
    pub fn spis(&self) -> usize {
        self.spis.len()
    }

    /// The CPU interface of vCPU `vcpu`, as after a reset of that vCPU: for its start, and for each that follows a
    /// `CPU_OFF`. A vCPU has one at a time. `None` where there is no such vCPU.
    pub fn cpu_interface(&self, vcpu: usize) -> Option<CpuInterface> {
        (vcpu < self.vcpus()).then(|| CpuInterface::new(vcpu))
    }

    /// The number of the physical interrupt that PPI `intid` is linked to.
    pub(crate) fn link(&self, intid: u32) -> u32 {
        self.links.get(intid as usize).copied().unwrap_or(0).into()
    }

    /// The word of an interrupt: a vCPU's own, or anybody's.
    pub(crate) fn word(&self, vcpu: usize, intid: u32) -> Option<&AtomicU64> {
        if intid < PRIVATE {
            return self.redistributors.get(vcpu)?.interrupts.get(intid as usize);
        }
        match self.spis.get((intid - PRIVATE) as usize) {
            None => self.lpis.get(intid.checked_sub(FIRST_LPI)? as usize),
            spi => spi,
        }
    }

    pub(crate) fn state(&self, vcpu: usize, intid: u32) -> Option<State> {
        Some(State(self.word(vcpu, intid)?.load(Ordering::Acquire)))
    }

    /// The vCPU that an interrupt is for: the one whose own it is, or the one that its affinity names.
    pub(crate) fn target(&self, vcpu: usize, intid: u32, state: State) -> Option<usize> {
        let index = if intid < PRIVATE { Some(vcpu) } else { affinity::index(state.affinity()) };
        index.filter(|index| *index < self.vcpus())
    }

    /// Applies `step` to an interrupt, in one; what it was, and what it is.
    ///
    /// The word is released, and acquired by the thread that sees it; nothing else is ordered by it.
    pub(crate) fn apply(
        &self,
        vcpu: usize,
        intid: u32,
        mut step: impl FnMut(State) -> Option<State>,
    ) -> Option<(State, State)> {
        let word = self.word(vcpu, intid)?;
        let mut now = word.load(Ordering::Acquire);
        loop {
            let from = State(now);
            let to = step(from)?;
            if to == from {
                return Some((from, to));
            }
            match word.compare_exchange_weak(now, to.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((from, to)),
                Err(seen) => now = seen,
            }
        }
    }

    /// Applies `step`, and tells the vCPU that it concerns. `None` where there is no such interrupt.
    pub(crate) fn change(
        &self,
        vcpu: usize,
        intid: u32,
        step: impl Fn(State) -> State,
    ) -> Option<State> {
        let is_recall = |from: State, to: State| to.is_recalled() && !from.is_recalled();
        let mut counted = false;
        let (from, to) = self.apply(vcpu, intid, |state| {
            let to = step(state);
            if is_recall(state, to) && !counted {
                counted = true;
                // Relaxed: the step on the word releases it, and is acquired by who counts that word no more.
                self.recalled.fetch_add(1, Ordering::Relaxed);
            }
            Some(to)
        })?;
        if counted && !is_recall(from, to) {
            // Relaxed: it was counted by this very call, and there is no word that says so.
            self.recalled.fetch_sub(1, Ordering::Relaxed);
        }
        if from != to {
            self.tell(vcpu, intid, from, to);
        }
        Some(from)
    }

    /// Tells whom the step from `from` to `to` concerns.
    pub(crate) fn tell(&self, vcpu: usize, intid: u32, from: State, to: State) {
        if to.is_loaded() {
            if from.recalls(to) {
                self.notify(to.owner());
            }
        } else if to.is_active() {
            // Its owner loads it when it next enters, and then whatever waits behind it.
            if let Some(owner) = self.redistributors.get(to.owner()) {
                owner.inbox.put(intid);
            }
            if !from.is_active() {
                self.notify(to.owner());
            }
        } else if to.is_deliverable(ALL_GROUPS) {
            self.deliver(vcpu, intid, to);
        } else if from.holds_physical() && !to.holds_physical() {
            // The physical interrupt is to come again, and is made inactive when its vCPU next enters.
            self.notify(vcpu);
        }
    }

    /// Has the vCPU that an interrupt is for look at it. Whether its group is on is for that vCPU to see: looked at here,
    /// a group that is turned on meanwhile might be missed by both.
    pub(crate) fn deliver(&self, vcpu: usize, intid: u32, state: State) {
        if let Some(target) = self.target(vcpu, intid, state) {
            self.redistributors[target].inbox.put(intid);
            self.notify(target);
        }
    }

    /// Gives notice to a vCPU, and kicks it if no other thread does.
    pub(crate) fn notify(&self, vcpu: usize) {
        if self.redistributors.get(vcpu).is_some_and(|target| target.inbox.notify()) {
            self.kick.kick(vcpu);
        }
    }

    /// Has a vCPU look at everything.
    pub(crate) fn review(&self, vcpu: usize) {
        if let Some(target) = self.redistributors.get(vcpu) {
            target.inbox.put_all();
            self.notify(vcpu);
        }
    }
}
