//! What a vCPU has of the GIC's hardware while it runs, and how it is loaded and read back.

use mayfly_platform::sync::{Ordering, fence};

use crate::list_register::{decode, encode, is_in};
use crate::select::{Candidate, First};
use crate::state::{FIRST_LPI, State};
use crate::vgic::{ALL_GROUPS, PRIVATE, Redistributor};
use crate::{Kick, MAX_LIST_REGISTERS, Vgic, affinity};

/// Bits of `ICH_HCR_EL2`.
mod hcr {
    const ENABLE: u64 = 1 << 0;
    /// A maintenance interrupt when an interrupt has ended that no list register has,
    pub(super) const NO_ENTRY: u64 = 1 << 2;
    /// when none is pending any more,
    pub(super) const NONE_PENDING: u64 = 1 << 3;
    /// when group 0 is turned on, or off; group 1 is two bits above.
    pub(super) const GROUP_ENABLED: u64 = 1 << 4;
    pub(super) const GROUP_DISABLED: u64 = 1 << 5;
    /// Deactivation by `ICC_DIR_EL1` traps.
    const TRAP_DIR: u64 = 1 << 14;
    pub(super) const EOI_COUNT: u32 = 27;
    /// Nothing is loaded.
    pub(super) const EMPTY: u64 = ENABLE | TRAP_DIR;
}

/// The hardware's registers that belong to a vCPU: loaded after [`Vgic::enter`], read back before [`Vgic::leave`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// `ICH_HCR_EL2`. Off the guest's CPU, it is 0.
    pub hcr: u64,
    /// `ICH_VMCR_EL2`.
    pub vmcr: u64,
    /// `ICH_AP0R<n>_EL2`, as many as there are.
    pub ap0r: [u32; 4],
    /// `ICH_AP1R<n>_EL2`, as many as there are.
    pub ap1r: [u32; 4],
    /// `ICH_LR<n>_EL2`: those of [`CpuInterface::used`], and 0 in all others, which hardware's have to be too.
    pub lr: [u64; MAX_LIST_REGISTERS],
}

/// A vCPU's side of the GIC. Belongs to the vCPU's thread. A clone of it is for the same vCPU of a [copy](Vgic::try_copy) of
/// that GIC.
#[derive(Clone, Debug)]
pub struct CpuInterface {
    /// What the hardware is given, and has given back.
    pub registers: Registers,
    vcpu: usize,
    loaded: [u32; MAX_LIST_REGISTERS],
    count: usize,
    /// Between `enter` and `leave`.
    inside: bool,
}

impl CpuInterface {
    pub(crate) fn new(vcpu: usize) -> Self {
        Self {
            registers: Registers::default(),
            vcpu,
            loaded: [0; MAX_LIST_REGISTERS],
            count: 0,
            inside: false,
        }
    }

    /// The vCPU whose it is.
    pub const fn vcpu(&self) -> usize {
        self.vcpu
    }

    /// Whether it is between [`Vgic::enter`] and [`Vgic::leave`].
    pub(crate) const fn is_inside(&self) -> bool {
        self.inside
    }

    /// How many list registers [`Vgic::enter`] has filled: the first. Only these have to be read back.
    pub const fn used(&self) -> usize {
        self.count
    }

    /// The groups that the guest takes: bit 0 and bit 1.
    const fn groups(&self) -> u32 {
        self.registers.vmcr as u32 & ALL_GROUPS
    }
}

impl<K: Kick> Vgic<K> {
    /// Whether there is something new for a vCPU. Looked at with interrupts masked right before it goes into its guest:
    /// if so, it does not go, and calls [`Vgic::leave`] and [`Vgic::enter`] first. (What comes after the look kicks, and
    /// the kick's interrupt brings it out again at once.)
    pub fn is_stale(&self, vcpu: usize) -> bool {
        self.redistributors.get(vcpu).is_some_and(|own| own.inbox.has_notice())
    }

    /// Puts into the list registers of `cpu` what its vCPU has to see: [`CpuInterface::registers`] are then for the
    /// hardware to have. Nothing if it is inside already.
    pub fn enter(&self, cpu: &mut CpuInterface) {
        let Some(own) = self.redistributors.get(cpu.vcpu) else { return };
        if cpu.inside {
            return;
        }
        cpu.inside = true;
        own.inbox.take_notice();
        cpu.registers.hcr = hcr::EMPTY;
        // It is so nearly always; and what comes now gives notice.
        if !own.inbox.is_empty() {
            self.load_deliverable(cpu, own);
        }
    }

    /// Loads what is in the inbox. Out of line, with the registers that it needs.
    #[inline(never)]
    fn load_deliverable(&self, cpu: &mut CpuInterface, own: &Redistributor) {
        let asleep = own.asleep.load(Ordering::Acquire) != 0;
        let mut groups = if asleep { 0 } else { self.groups.load(Ordering::Acquire) };
        // A group that is turned off meanwhile is left out from then on, whatever another vCPU writes: so this is done three
        // times at most. The notice is taken once, before, and who turns a group on again gives another.
        while let Some(left) = self.load_of(cpu, own, groups) {
            self.take_back(cpu, own);
            cpu.registers.hcr = hcr::EMPTY;
            groups = left;
        }
    }

    /// Loads what is of `groups`, and active. If one of these was turned off meanwhile, what is loaded of it has to come out
    /// before the guest runs: then, the groups that are left.
    fn load_of(&self, cpu: &mut CpuInterface, own: &Redistributor, groups: u32) -> Option<u32> {
        let (mut pending, mut active) = (First::new(), First::new());
        let (mut more_pending, mut more_active) = (false, false);
        let limit = self.list_registers;

        own.inbox.take(|intid| {
            let Some((candidate, state)) = self.candidate(cpu, intid) else { return };
            if !state.is_active() && !state.is_in(groups) {
                // Not to be given now, but to be seen by a vCPU that asks what would end a WFI.
                own.inbox.put(intid);
                return;
            }
            let (first, more) = if state.is_active() {
                (&mut active, &mut more_active)
            } else {
                (&mut pending, &mut more_pending)
            };
            if let Some(behind) = first.offer(candidate, limit) {
                *more = true;
                own.inbox.put(behind.intid);
            }
        });
        let route = affinity(cpu.vcpu) as u32;
        let masked = cpu.groups() >> 1 == 0;
        own.inbox.look_at_lpis(|intid| {
            let Some(priority) = self.lpi_due(intid, route) else { return false };
            if groups >> 1 != 0
                && let Some(behind) = pending.offer(Candidate { masked, priority, intid }, limit)
            {
                more_pending = true;
                // LPIs are in it still.
                if behind.intid < FIRST_LPI {
                    own.inbox.put(behind.intid);
                }
            }
            true
        });
        // Active ones first, since the guest is about to end them; but one place is for what it would take next.
        let reserved = pending.as_slice().len().min(1);
        while let Some(behind) = active.cut(limit - reserved) {
            more_active = true;
            own.inbox.put(behind.intid);
        }
        while let Some(behind) = pending.cut(limit - active.as_slice().len()) {
            more_pending = true;
            own.inbox.put(behind.intid);
        }

        for candidate in active.as_slice().iter().chain(pending.as_slice()) {
            self.load(cpu, candidate.intid, groups, more_pending);
        }
        if more_active {
            cpu.registers.hcr |= hcr::NO_ENTRY;
        }
        if more_pending {
            cpu.registers.hcr |= hcr::NONE_PENDING;
            for group in 0..2 {
                let on = cpu.groups() >> group & 1 != 0;
                let change = if on { hcr::GROUP_DISABLED } else { hcr::GROUP_ENABLED };
                cpu.registers.hcr |= change << (2 * group);
            }
        }
        // Of nothing loaded there is nothing to take back. Pairs with the fence in `set_groups`: a vCPU that turns a
        // group off sees what is loaded, and takes it back; or it is seen here that the group is off.
        if cpu.count == 0 {
            return None;
        }
        fence(Ordering::SeqCst);
        let off = groups & !self.groups.load(Ordering::Relaxed);
        let goes = off != 0 && cpu.registers.lr[..cpu.count].iter().any(|lr| is_in(*lr, off));
        goes.then_some(groups & !off)
    }

    /// What an interrupt is to this vCPU, whatever group is on.
    fn candidate(&self, cpu: &CpuInterface, intid: u32) -> Option<(Candidate, State)> {
        let state = self.state(cpu.vcpu, intid)?;
        let mine = self.target(cpu.vcpu, intid, state) == Some(cpu.vcpu);
        state.load(cpu.vcpu, mine, ALL_GROUPS)?;
        let masked = !state.is_active() && !state.is_in(cpu.groups());
        Some((Candidate { masked, priority: state.rank(), intid }, state))
    }

    /// The priority of an LPI, if it is to be given to the vCPU of that affinity.
    #[inline]
    fn lpi_due(&self, intid: u32, affinity: u32) -> Option<u8> {
        let word = self.lpis.get((intid - FIRST_LPI) as usize)?;
        let state = State(word.load(Ordering::Acquire));
        state.is_lpi_due(affinity).then(|| state.priority())
    }

    /// Loads an interrupt, if it still is what it was a moment ago. If it is not, the party that changed it has told
    /// the vCPU that it concerns, this vCPU too.
    ///
    /// Where others are `left` out that are pending, what is pending behind an active one waits for the end of that: it
    /// might be less urgent than those, and keep the hardware from saying that nothing is pending.
    fn load(&self, cpu: &mut CpuInterface, intid: u32, groups: u32, left: bool) {
        let vcpu = cpu.vcpu;
        let load = |state: State| {
            let mine = self.target(vcpu, intid, state) == Some(vcpu);
            state.load(vcpu, mine && !(left && state.is_active()), groups)
        };
        let changed = self.apply(vcpu, intid, |state| load(state).map(|(to, _)| to));
        if let Some((from, to)) = changed
            && let Some((_, load)) = load(from)
        {
            cpu.registers.lr[cpu.count] = encode(intid, to, load, self.link(intid));
            cpu.loaded[cpu.count] = intid;
            cpu.count += 1;
        }
    }

    /// Takes back what the guest has left in the list registers of `cpu`, which were read into
    /// [`CpuInterface::registers`] before. Nothing if it is not inside.
    #[inline]
    pub fn leave(&self, cpu: &mut CpuInterface) {
        let Some(own) = self.redistributors.get(cpu.vcpu) else { return };
        if !cpu.inside {
            return;
        }
        cpu.inside = false;
        // As it is nearly always: nothing was loaded, nor left out.
        if cpu.count == 0 && cpu.registers.hcr & hcr::NO_ENTRY == 0 {
            cpu.registers.hcr = 0;
            return;
        }
        self.take_back(cpu, own);
    }

    /// Takes back what was loaded, or has ended unloaded. Out of line, with the registers that it needs.
    #[inline(never)]
    fn take_back(&self, cpu: &mut CpuInterface, own: &Redistributor) {
        // Those that a list register has are not among these. Where every active one had one, the guest has ended what
        // was active no more.
        if cpu.registers.hcr & hcr::NO_ENTRY != 0 {
            for _ in 0..cpu.registers.hcr >> hcr::EOI_COUNT & 0x1f {
                self.end_unloaded(cpu.vcpu);
            }
        }
        // By reference: an array is copied whole, and here most of it is of no use.
        for (intid, register) in cpu.loaded[..cpu.count].iter().zip(&cpu.registers.lr) {
            let (pending, active, priority) = decode(*register);
            // A CPU may say that an LPI is active until its end; to the architecture it never is.
            let active = active && *intid < FIRST_LPI;
            let fold = |state: State| Some(state.fold(pending, active, priority));
            let Some((from, to)) = self.apply(cpu.vcpu, *intid, fold) else { continue };
            if from.is_recalled() {
                // Release, pairing with the acquire in `is_any_recalled`: who finds nothing recalled finds the word as folded.
                self.recalled.fetch_sub(1, Ordering::Release);
            }
            own.inbox.put(*intid);
            let elsewhere = self.target(cpu.vcpu, *intid, to) != Some(cpu.vcpu);
            if elsewhere && to.is_deliverable(ALL_GROUPS) {
                self.deliver(cpu.vcpu, *intid, to);
            }
        }
        cpu.registers.lr[..cpu.count].fill(0);
        cpu.count = 0;
        cpu.registers.hcr = 0;
    }

    /// The guest has ended an interrupt that no list register had. The hardware counts these and does not name them; what
    /// a guest ends is what it runs, and that has the highest priority of those that are active.
    fn end_unloaded(&self, vcpu: usize) {
        let mut first = None;
        self.redistributors[vcpu].inbox.peek(|intid| {
            let Some(state) = self.state(vcpu, intid) else { return };
            if state.is_active() && !state.is_loaded() && state.owner() == vcpu {
                let candidate = (state.rank(), intid);
                first = Some(first.map_or(candidate, |best: (u8, u32)| best.min(candidate)));
            }
        });
        if let Some((_, intid)) = first {
            self.change(vcpu, intid, State::deactivated);
        }
    }

    /// Whether an interrupt waits that the vCPU would take, or that ends its WFI: looked at after [`Vgic::leave`], and
    /// after the vCPU has said where [`Kick::kick`] sees it that it sleeps. Whatever comes after this look kicks.
    pub fn is_pending(&self, cpu: &CpuInterface) -> bool {
        let Some(own) = self.redistributors.get(cpu.vcpu) else { return false };
        own.inbox.take_notice();
        let asleep = own.asleep.load(Ordering::Acquire) != 0;
        let groups = self.groups.load(Ordering::Acquire);
        let mask = (cpu.registers.vmcr >> 24) as u8;
        let mut found = false;
        own.inbox.peek(|intid| {
            let Some(state) = self.state(cpu.vcpu, intid) else { return };
            let mine = self.target(cpu.vcpu, intid, state) == Some(cpu.vcpu);
            // A redistributor that sleeps asks to be woken by anything.
            let taken = asleep || state.priority() < mask && state.is_in(cpu.groups());
            found |= mine && taken && state.is_deliverable(groups);
        });
        let route = affinity(cpu.vcpu) as u32;
        let is_on = groups >> 1 != 0 && (asleep || cpu.groups() >> 1 != 0);
        own.inbox.look_at_lpis(|intid| {
            // One is enough: the others are not looked at, and stay.
            if found {
                return true;
            }
            let Some(priority) = self.lpi_due(intid, route) else { return false };
            found |= is_on && (asleep || priority < mask);
            true
        });
        found
    }

    /// Whether the physical interrupt that PPI `ppi` is linked to has to be active while vCPU `vcpu` runs: its handler
    /// in the guest has not ended, or not begun. Written to the CPU's own redistributor (`GICR_ISACTIVER0`,
    /// `GICR_ICACTIVER0`) after [`Vgic::enter`], and cleared there when the vCPU leaves the CPU.
    pub fn holds_physical(&self, vcpu: usize, ppi: u32) -> bool {
        ppi < PRIVATE && self.state(vcpu, ppi).is_some_and(State::holds_physical)
    }
}
