//! A vCPU: the loop that runs the guest and handles its exits.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;

use mayfly_iobus as iobus;
use mayfly_memslot::LastHit;
use mayfly_platform::Op;
use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{Ordering, fence};
use mayfly_srcu::Reader;
use mayfly_stage2::{Format, Held, Holder, VcpuMark};

use crate::caches::{GuestCaches, VcpuCaches};
use crate::fault::Handled;
use crate::guest::{Access, CacheOp, Event, Guest, MMIO_MAX, PortAccess, Translation};
use crate::kicker::Asked;
use crate::on_bus::OnBus;
use crate::stall::Usual;
use crate::vm::{Inner, Vm};
use crate::{Error, Kicker, Requests, World};

/// Why [`Vcpu::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// An access that neither memory nor a device answers: the caller's to answer. For a write, the bytes are in
    /// [`Guest::data`]; for a read, that is where the caller puts them. Then it calls [`Guest::answered`], and runs the
    /// vCPU again; otherwise the guest makes the access again.
    Mmio(Access),
    /// An access that memory alone can answer, where there is none, or none that may be written: a fetch; a walk of the
    /// guest's own tables; one that leaves its page, or of which too little is known
    /// ([`AccessKind`](crate::AccessKind)). The caller injects an abort (Arm: a synchronous external one; of the walk,
    /// where it was one), or decodes the instruction, and has [`Guest::enter`] come out with what that says.
    Unbacked(Access),
    /// An access to a port that no device has; otherwise as [`Exit::Mmio`].
    Port(PortAccess),
    /// The guest has done this to its caches; unless [`Caches::Tracked`](crate::Caches::Tracked) has the VM see to it.
    /// The caller does what is to be done, and runs the vCPU again.
    Caches(CacheOp),
    /// The guest has nothing more to do.
    Halt,
    /// [`Event::Custom`], of the same number.
    Custom(u64),
    /// [`Vm::kick`](crate::Vm::kick) or [`Kicker::kick`] asked for it, or the VM is being destroyed.
    Kicked,
    /// [`Kicker::ask`] asked for it, with these bits.
    Asked(u16),
    /// An access to memory that the host could not provide for. Run again, the vCPU makes it again.
    Failed(Access, Error),
}

/// A vCPU. One thread at a time runs it; dropping it removes it from its VM.
pub struct Vcpu<W: World> {
    /// Dropped before the vCPU is taken off the list, which frees what has no handle left.
    kicker: Kicker,
    /// As the kicker.
    holder: Holder<Asked>,
    vm: Listed<W>,
    reader: Reader,
    /// Tells it from other vCPUs whose translations a TLB may have; and from itself on other CPUs, where what its guest
    /// has forgotten is forgotten on its own CPU alone.
    mark: VcpuMark,
    /// Where the mark is good.
    cpu: u32,
    caches: VcpuCaches,
    last_slot: LastHit,
    last_mmio: iobus::LastHit,
    last_pio: iobus::LastHit,
    usual: Usual,
}

impl<W: World> Vm<W> {
    /// A new vCPU, numbered `id` (below 4096), which must not be one of the VM's.
    ///
    /// # Errors
    ///
    /// [`Error::VcpuExists`], [`Error::VcpuOutOfRange`], [`Error::OutOfMemory`]; [`Error::Stage2`] after
    /// [`Vm::destroy`], and for the first vCPU where there are no frames for its root. The VM is as it was then.
    pub fn create_vcpu(&self, id: u32) -> Result<Vcpu<W>, Error> {
        let waiters = self.inner.stage2.invalidation_waiters();
        let asked = Asked::try_new(Arc::clone(&self.inner.platform), waiters)?;
        let reader = self.inner.srcu.reader()?;
        let kicker = self.inner.vcpus.lock(&*self.inner.platform).add(id, asked)?;
        // From here on it is asked to reload when roots are replaced, and dropping it takes it off the list.
        let listed = Listed::new(id, self.inner.clone());
        // Dropped before that if this fails.
        let kicker = kicker;
        let holder = self.inner.stage2.register_holder(kicker.asked())?;
        let mut vcpu = Vcpu::new(listed, kicker, holder, reader);
        if let Some(role) = self.inner.upkeep.later_role() {
            // So that no memory is needed when its caches are turned on.
            self.inner.stage2.ensure_root(role)?;
        }
        vcpu.load_root()?;
        Ok(vcpu)
    }
}

impl<W: World> Vcpu<W> {
    pub(crate) fn new(
        vm: Listed<W>,
        kicker: Kicker,
        holder: Holder<Asked>,
        reader: Reader,
    ) -> Self {
        Self {
            caches: vm.upkeep.vcpu(),
            mark: vm.stage2.vcpu(),
            cpu: 0,
            kicker,
            holder,
            vm,
            reader,
            last_slot: LastHit::default(),
            last_mmio: iobus::LastHit::default(),
            last_pio: iobus::LastHit::default(),
            usual: Usual::new(),
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.vm.id
    }

    /// What others ask of it.
    pub fn requests(&self) -> &Requests {
        self.kicker.requests()
    }

    /// What asks things of it from anywhere, interrupt handlers included.
    pub fn kicker(&self) -> Kicker {
        self.kicker.clone()
    }

    /// Runs the guest until it has an exit for the caller.
    ///
    /// Takes no lock. Waits in two cases only. At a fault, it waits for a CPU that is just changing the very entry that
    /// it needs, or for the host to finish with taking that page away. Where its guest turns its caches on or off, it
    /// waits for TLBs, and for other vCPUs that do the same. If a device was registered before this guest's access was
    /// made (in the sense of happens-before, through guest memory included), the access finds it.
    pub fn run(&mut self, guest: &mut impl Guest<W::Format>) -> Exit {
        let mut loading = false;
        let exit = self.run_until_exit(guest, &mut loading);
        if loading {
            self.vm.platform.charge(Op::RootLoadEnd);
        }
        exit
    }

    /// Says in `loading` whether it is loading a root.
    fn run_until_exit(&mut self, guest: &mut impl Guest<W::Format>, loading: &mut bool) -> Exit {
        // Once: the caller that destroys the VM says so first, and then asks every vCPU to come out.
        let mut asked = self.requests().any() || self.vm.is_destroyed();
        loop {
            if asked && let Some(exit) = self.obey(loading) {
                return exit;
            }
            let cpu = guest.cpu();
            if !W::Format::GUEST_REACHES_ALL && cpu != self.cpu {
                self.move_to(cpu);
            }
            // The present root, if it is still the present one when it is held and nothing is asked.
            let (vm, requests, role) = (&*self.vm, self.kicker.requests(), self.caches.role());
            let holder = &mut self.holder;
            let inside = match requests
                .enter_guest(cpu, &*vm.platform, move || holder.enter(&vm.stage2, role))
            {
                Ok(root) => Inside { root, _way_out: WayOut { vm, requests } },
                Err(left) => {
                    vm.came_out(left);
                    // What is asked comes first. Otherwise the root has been replaced, or there is none any more.
                    if !requests.any() && vm.stage2.ensure_root(role).is_err() {
                        return Exit::Kicked;
                    }
                    asked = requests.any();
                    continue;
                }
            };
            if core::mem::take(loading) {
                vm.platform.charge(Op::RootLoadEnd);
            }
            let (top, tag, vcpu) = (inside.root.top(), inside.root.tag(), self.mark);
            let (traps, walked) = (self.caches.traps(), PhantomData);
            let translation = Translation { traps, top, tag, vcpu, cpu, walked };
            // Here, and in no function of its own, from which the event would be copied.
            let event = guest.enter(translation, requests);
            // The CPU has left the guest. What it does there still, it does not when the root is freed
            // (`Vmids::leave`).
            drop(inside);
            match event {
                Event::Request => {
                    if !self.requests().any() {
                        self.vm.platform.relax();
                    }
                }
                Event::Halt => return Exit::Halt,
                Event::Custom(number) => return Exit::Custom(number),
                Event::Caches(op) => {
                    if !self.change_caches(op) {
                        return Exit::Caches(op);
                    }
                }
                // Looked at where it is: it is large.
                Event::Access(ref access) => match self.access(access, guest) {
                    Ok(Answer::Given) => {}
                    Ok(Answer::NoDevice) => return Exit::Mmio(*access),
                    Ok(Answer::NoMemory) => return Exit::Unbacked(*access),
                    Err(error) => return Exit::Failed(*access, error),
                },
                Event::Port(access) => {
                    if !self.port(access, guest) {
                        return Exit::Port(access);
                    }
                }
            }
            asked = self.requests().any();
        }
    }

    /// Is another vCPU for TLBs from now on: where it comes back to, it finds what it has left outdated.
    #[cold]
    fn move_to(&mut self, cpu: u32) {
        (self.cpu, self.mark) = (cpu, self.vm.stage2.vcpu());
    }

    /// Does what is asked. Returns the exit that follows from it, if one does.
    #[cold]
    fn obey(&mut self, loading: &mut bool) -> Option<Exit> {
        if self.requests().take_exit() || self.vm.is_destroyed() {
            return Some(Exit::Kicked);
        }
        if let Some(bits) = self.requests().take_custom() {
            return Some(Exit::Asked(bits));
        }
        if self.requests().take_reload() {
            if !core::mem::replace(loading, true) {
                self.vm.platform.charge(Op::RootLoadBegin);
            }
            if self.load_root().is_err() {
                // The VM is being destroyed.
                return Some(Exit::Kicked);
            }
        }
        None
    }

    /// Readies the vCPU for the VM's present root. No lock, no wait; no memory either, but for a VM's first vCPU:
    /// the call that replaces a root makes the new one.
    pub(crate) fn load_root(&mut self) -> Result<(), Error> {
        Ok(self.vm.stage2.ensure_root(self.caches.role())?)
    }

    /// To be called when a vCPU that has run is reset (the guest starts it again, or the VM): its caches are off then,
    /// without its guest having turned them off. What memory the host has changed by then, the guest reads as it is,
    /// caches or not.
    pub fn reset_caches(&mut self) {
        self.change_caches(CacheOp::Off);
    }

    /// Whether its guest has its caches on, for a vCPU that is to go on as this one: [`Vcpu::start_with_caches`].
    pub fn guest_caches(&self) -> GuestCaches {
        self.caches.state()
    }

    /// To be called before the first run of a vCPU whose guest goes on where the guest of another vCPU was, in this VM or
    /// another one. Flushes nothing, because this guest has not turned its caches on: they were on when it last looked.
    ///
    /// # Errors
    ///
    /// [`Error::Stage2`], if there is no memory for a root.
    pub fn start_with_caches(&mut self, caches: GuestCaches) -> Result<(), Error> {
        self.vm.upkeep.begin(&mut self.caches, caches);
        self.load_root()
    }

    /// The guest has done `op`, and is outside now. Returns whether that has been seen to.
    fn change_caches(&mut self, op: CacheOp) -> bool {
        order_after_guest();
        let role = self.caches.role();
        let seen_to = self.vm.change_caches(&mut self.caches, op);
        if self.caches.role() != role {
            // If there is none, the VM is being destroyed, and the vCPU comes out by itself.
            let _ = self.load_root();
        }
        seen_to
    }

    /// Answers an access from memory or a device.
    fn access(
        &mut self,
        access: &Access,
        guest: &mut impl Guest<W::Format>,
    ) -> Result<Answer, Error> {
        order_after_guest();
        let mut largest = self.vm.largest();
        let mut timed = None;
        loop {
            let refused = {
                let section = self.reader.lock();
                // Memory is asked before all else, also before the length.
                let Some(met) = self.vm.meet(access, &mut self.last_slot, &section) else {
                    if !access.may_be_emulated() {
                        return Ok(Answer::NoMemory);
                    }
                    let bus =
                        OnBus { bus: &self.vm.mmio, last: &mut self.last_mmio, vcpu: self.vm.id };
                    let is_answered = access.len <= MMIO_MAX as u64
                        && access.len > 0
                        && bus.access(&section, access.gpa.get(), access.write, guest);
                    return Ok(if is_answered { Answer::Given } else { Answer::NoDevice });
                };
                if access.write && timed.is_none() {
                    timed = self.usual.begin(met.is_logged(), || self.vm.platform.now());
                }
                let role = self.caches.role();
                match self.vm.handle_fault(access, &met, role, largest, &section)? {
                    Handled::Resolved => break,
                    Handled::Stale => {
                        guest.forget(access.gpa.gfn());
                        break;
                    }
                    Handled::Changed if self.kicker.requests().any() => break,
                    Handled::Changed => continue,
                    Handled::Refused(level) => level,
                }
            };
            let requests = self.kicker.requests();
            let Some(smaller) = self.vm.wait_refused(access.gpa.gfn(), refused, requests) else {
                break;
            };
            largest = smaller;
        }
        if let Some(timed) = timed {
            self.usual.end(timed, self.vm.platform.now(), self.kicker.stalls());
        }
        Ok(Answer::Given)
    }

    /// Answers an access to a port. Returns whether a device did.
    fn port(&mut self, access: PortAccess, guest: &mut impl Guest<W::Format>) -> bool {
        order_after_guest();
        let section = self.reader.lock();
        let bus = OnBus { bus: &self.vm.pio, last: &mut self.last_pio, vcpu: self.vm.id };
        bus.access(&section, u64::from(access.port), access.write, guest)
    }
}

/// A vCPU in its guest. It comes out when this is dropped, also where the guest panics: others wait for that.
struct Inside<'a, W: World> {
    /// Dropped first.
    root: Held<'a, W::Format>,
    _way_out: WayOut<'a, W>,
}

struct WayOut<'a, W: World> {
    vm: &'a Inner<W>,
    requests: &'a Requests,
}

impl<W: World> Drop for WayOut<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.vm.came_out(self.requests.leave_guest(&*self.vm.platform));
    }
}

/// What became of an access.
enum Answer {
    /// It goes on, or is made again.
    Given,
    /// There is neither memory, nor a device.
    NoDevice,
    /// There is no memory, and it is no access that a device could answer.
    NoMemory,
}

/// What the guest read before its access (that a device is there, say) was read before what the hypervisor loads next.
/// Pairs with the release that published that, through whatever carried the word to the guest.
#[inline]
fn order_after_guest() {
    fence(Ordering::Acquire);
}

/// A vCPU's place on its VM's list, and its share in the VM. Dropped, it takes the vCPU off the list.
pub(crate) struct Listed<W: World> {
    id: u32,
    vm: Shared<Inner<W>>,
}

impl<W: World> Listed<W> {
    /// For the vCPU that was put on `vm`'s list as `id`.
    pub(crate) fn new(id: u32, vm: Shared<Inner<W>>) -> Self {
        Self { id, vm }
    }
}

impl<W: World> Deref for Listed<W> {
    type Target = Inner<W>;

    #[inline]
    fn deref(&self) -> &Inner<W> {
        &self.vm
    }
}

impl<W: World> Drop for Listed<W> {
    fn drop(&mut self) {
        self.vm.remove_vcpu(self.id);
    }
}

impl<W: World> core::fmt::Debug for Vcpu<W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Vcpu").field("id", &self.id()).finish_non_exhaustive()
    }
}
