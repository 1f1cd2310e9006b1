//! A virtio device of a guest: its registers, which vCPUs access, and its rings, which the thread of the VM's devices
//! serves.
//!
//! Threads sleep for its lock, so that a long request may be preempted while it is served.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use mayfly_devices::line::{fall, settle};
use mayfly_devices::memory::{BadAddress, BadCopy, GuestMemory as Memory};
use mayfly_devices::virtio::{self, Mmio, Served};
use mayfly_hypervisor::late::Late;
use mayfly_vm::platform::lock::Lock;
use mayfly_vm::{Device, HostFault};

use super::arch::MEMORY;
use super::lines::Lines;
use super::shown::Shown;
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;

/// How often a thread of another VM, or of none, sleeps for the lock of a device, which the device's vCPUs take as often as
/// they like.
const PATIENCE: u32 = 64;

/// The most rings of a device: two of each queue.
const MOST_RINGS: usize = 6;

/// A virtio device, which is made of an `S` when a vCPU first accesses its registers.
pub(crate) struct Virtio<D, S> {
    world: Arc<World>,
    device: Lock<Registers<D, S>>,
    lines: Arc<Lines>,
    interrupt: u32,
    /// Its driver has notified it, or the thread of the devices is to look for another reason.
    is_notified: AtomicBool,
    /// Its line may not have the level that the device says. Set before `is_notified`.
    is_unsettled: AtomicBool,
    bell: Arc<Bell>,
}

/// A device, and what its guest is shown of it.
struct Registers<D, S> {
    device: Late<Mmio<D>, S>,
    shown: Option<Shown>,
}

/// The memory of the guest, as a device reaches it.
pub(crate) struct Ram<'a> {
    memory: &'a GuestMemory,
    /// The caller may wait for a frame of a page that is written to, and give its processor up.
    waits: bool,
    /// There was no frame for a page that it accessed.
    is_short: Cell<bool>,
    /// What a caller that waits for nothing has done since it looked for interrupts, in accesses of 64 bytes.
    done: Cell<usize>,
}

/// After how many accesses of 64 bytes, or of less, a caller that waits for nothing looks for interrupts.
const ACCESSES: usize = 64;

impl<'a> Ram<'a> {
    pub(crate) fn new(memory: &'a GuestMemory) -> Self {
        Self { memory, waits: true, is_short: Cell::new(false), done: Cell::new(0) }
    }

    /// The memory as a caller reaches it that has a lock which others wait for: it waits for nothing. A page for which
    /// there is no frame at once is not there.
    pub(crate) fn at_once(memory: &'a GuestMemory) -> Self {
        Self { waits: false, ..Self::new(memory) }
    }

    /// Has each page of `bytes` from `address` on be the guest's own, if they are memory: then a device that waits for
    /// nothing can write to them.
    pub(super) fn own(&self, address: u64, bytes: u64) {
        let owned = self
            .place(address, bytes)
            .map(|at| self.memory.own(at, bytes).map_err(|fault| self.failed(address, fault)));
        // What is not memory is not there when the device looks, either.
        let _ = owned;
    }

    /// Whether the guest needs more memory than there is.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.get()
    }

    fn place(&self, address: u64, bytes: u64) -> Result<u64, BadAddress> {
        place(self.memory, address, bytes)
    }

    /// Has `then` use a number that a device and its driver share.
    fn with_shared<T>(
        &self,
        address: u64,
        then: impl FnOnce(&AtomicU16) -> T,
    ) -> Result<T, BadAddress> {
        let at = self.place(address, 2)?;
        let done = if self.waits {
            self.memory.with_number(at, then)
        } else {
            self.memory.with_number_now(at, then)
        };
        done.map_err(|fault| self.failed(address, fault))
    }

    /// Looks for interrupts now and then, after an access of so many bytes.
    fn accessed(&self, bytes: usize) {
        let done = self.done.get() + 1 + bytes / 64;
        if done < ACCESSES || self.waits {
            self.done.set(done);
        } else {
            self.done.set(0);
            threads::interrupts::look();
        }
    }

    fn failed(&self, address: u64, fault: HostFault) -> BadAddress {
        if fault == HostFault::OutOfMemory {
            self.is_short.set(true);
        }
        BadAddress { address }
    }
}

/// Where in a guest's memory an address is, if all of `bytes` from there on are.
fn place(memory: &GuestMemory, address: u64, bytes: u64) -> Result<u64, BadAddress> {
    let at = address.checked_sub(MEMORY).ok_or(BadAddress { address })?;
    if memory.contains(at, bytes) { Ok(at) } else { Err(BadAddress { address }) }
}

impl Memory for Ram<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        let at = self.place(address, into.len() as u64)?;
        let read = if self.waits { GuestMemory::read } else { GuestMemory::read_now };
        read(self.memory, at, into).map_err(|fault| self.failed(address, fault))?;
        self.accessed(into.len());
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        let at = self.place(address, from.len() as u64)?;
        let write = if self.waits { GuestMemory::write } else { GuestMemory::write_now };
        write(self.memory, at, from).map_err(|fault| self.failed(address, fault))?;
        self.accessed(from.len());
        Ok(())
    }

    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress> {
        self.with_shared(address, |number| u16::from_le(number.load(Ordering::Acquire)))
    }

    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress> {
        self.with_shared(address, |number| number.store(value.to_le(), Ordering::Release))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self.memory)
    }

    fn copy_from(
        &self,
        to: u64,
        (other, from): (&dyn Any, u64),
        bytes: usize,
    ) -> Option<Result<(), BadCopy>> {
        let other = other.downcast_ref::<GuestMemory>().filter(|_| !self.waits)?;
        let places = place(other, from, bytes as u64).map_err(BadCopy::From).and_then(|from| {
            self.place(to, bytes as u64).map(|to| (from, to)).map_err(BadCopy::To)
        });
        Some(places.and_then(|(source, target)| {
            let copied = self.memory.copy_now(target, (other, source), bytes as u64);
            self.accessed(bytes);
            copied.map_err(|fault| BadCopy::To(self.failed(to, fault)))
        }))
    }
}

impl<D: virtio::Device, S> Registers<D, S> {
    /// The level of the device's interrupt, of which its guest finds the reason in the registers that it is shown.
    fn level(&mut self) -> bool {
        let device = self.device.get();
        if let Some(shown) = &mut self.shown {
            shown.is_served(device);
        }
        device.interrupt()
    }

    /// The guest writes.
    fn write(&mut self, offset: u64, data: &[u8]) -> Written {
        let device = self.device.get();
        let before = device.interrupt_status();
        if device.write(offset, data) {
            return Written::Notified;
        }
        if let Some(shown) = &mut self.shown {
            shown.is_written(device);
        }
        if before & !device.interrupt_status() != 0 {
            Written::Acknowledged
        } else {
            Written::Changed
        }
    }
}

/// What a guest has done by a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// It has notified the device, by which no register changes.
    Notified,
    /// It was told of something, and has taken notice, or has reset the device.
    Acknowledged,
    /// Something else.
    Changed,
}

impl<D: virtio::Device, S> Virtio<D, S> {
    /// The device as after a reset, made by `make` of `from`. It raises `interrupt` by `lines`, and rings `bell` when its driver
    /// notifies it.
    pub(crate) fn new(
        world: &Arc<World>,
        from: S,
        make: fn(S) -> Mmio<D>,
        lines: &Arc<Lines>,
        interrupt: u32,
        bell: &Arc<Bell>,
    ) -> Self {
        Self::of(world, Late::new(from, make), lines, interrupt, false, bell)
    }

    /// The same of a device that is there, and whose driver may have notified it.
    pub(super) fn made(
        world: &Arc<World>,
        device: Box<Mmio<D>>,
        make: fn(S) -> Mmio<D>,
        lines: &Arc<Lines>,
        interrupt: u32,
        bell: &Arc<Bell>,
    ) -> Self {
        Self::of(world, Late::made_already(device, make), lines, interrupt, true, bell)
    }

    fn of(
        world: &Arc<World>,
        device: Late<Mmio<D>, S>,
        lines: &Arc<Lines>,
        interrupt: u32,
        is_notified: bool,
        bell: &Arc<Bell>,
    ) -> Self {
        Self {
            world: Arc::clone(world),
            device: Lock::new(Registers { device, shown: None }),
            lines: Arc::clone(lines),
            interrupt,
            is_notified: AtomicBool::new(is_notified),
            is_unsettled: AtomicBool::new(is_notified),
            bell: Arc::clone(bell),
        }
    }

    /// Does something with the device, under its lock.
    pub(crate) fn with<T>(&self, then: impl FnOnce(&mut Mmio<D>) -> T) -> T {
        then(self.device.lock(&*self.world).device.get())
    }

    /// The same for a thread that works for others than its VM, too, and that its vCPUs are not to hold up; unless they keep
    /// the lock from it.
    pub(crate) fn with_soon<T>(&self, then: impl FnOnce(&mut Mmio<D>) -> T) -> Option<T> {
        let mut device = self.device.lock_within(PATIENCE, &*self.world)?;
        Some(then(device.device.get()))
    }

    /// The same for a thread that waits for nothing here: whoever has the lock may wait for memory. `None` if the lock is taken.
    pub(crate) fn with_now<T>(&self, then: impl FnOnce(&mut Mmio<D>) -> T) -> Option<T> {
        let mut device = self.device.try_lock(&*self.world)?;
        Some(then(device.device.get()))
    }

    /// It goes on as another device was, which may have been notified, and whose line may have been high. Its thread waits, and
    /// no vCPU has it.
    pub(super) fn goes_on(&self) {
        self.is_unsettled.store(true, Ordering::Release);
        self.is_notified.store(true, Ordering::Release);
    }

    /// Whether its driver has notified it since this was asked last. If so, its line is driven where nobody has since that was
    /// left to the thread of the devices, which asks.
    pub(crate) fn take_notice(&self) -> bool {
        let is_notified = self.is_notified.swap(false, Ordering::Acquire);
        // Acquire: the device is as whoever left it has seen it.
        if is_notified
            && self.is_unsettled.load(Ordering::Relaxed)
            && self.is_unsettled.swap(false, Ordering::Acquire)
        {
            self.drive();
        }
        is_notified
    }

    /// Has the pages of its rings be the guest's own, where it goes on as another device was. The caller waits for memory.
    pub(crate) fn own_rings(&self, ram: &Ram<'_>) {
        let mut rings = [(0, 0); MOST_RINGS];
        self.with(|device| rings.iter_mut().zip(device.rings()).for_each(|(to, from)| *to = from));
        for (address, bytes) in rings {
            ram.own(address, bytes);
        }
    }

    /// Has the thread of the devices come back to it.
    pub(crate) fn look_again(&self) {
        self.is_notified.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Does something with the device, and has its guest find out what it is told by that, if anything. For the thread of the
    /// devices.
    pub(crate) fn act<T>(&self, then: impl FnOnce(&mut Mmio<D>) -> T) -> T {
        let (done, is_told) = self.with(|device| telling(device, then));
        if is_told {
            self.drive();
        }
        done
    }

    /// The same for a thread that its vCPUs are not to hold up; unless they keep the lock from it.
    pub(crate) fn act_soon<T>(&self, then: impl FnOnce(&mut Mmio<D>) -> T) -> Option<T> {
        let (done, is_told) = self.with_soon(|device| telling(device, then))?;
        if is_told {
            self.drive_soon();
        }
        Some(done)
    }

    /// Has its guest find its registers in memory, from `at` on. The page gets its frame.
    pub(super) fn show(&self, memory: &Arc<GuestMemory>, at: u64) -> Result<(), HostFault> {
        let mut registers = self.device.lock(&*self.world);
        let shown = Shown::try_new(registers.device.get(), memory, at)?;
        registers.shown = Some(shown);
        Ok(())
    }

    /// Has the page in which its guest finds its registers, if it does, be the guest's own, which it may not be since its memory
    /// became an image: then nobody waits for a frame who shows what has changed. The caller waits for memory.
    pub(crate) fn own_shown(&self) {
        let place = self.device.lock(&*self.world).shown.as_ref().map(Shown::place);
        if let Some((memory, at)) = place {
            // Where memory has ended, its guest is not shown what changes, and ends.
            let _ = memory.own(at, 1);
        }
    }

    /// Its guest reads its registers no more.
    pub(super) fn hide(&self) {
        let shown = self.device.lock(&*self.world).shown.take();
        drop(shown);
    }

    /// Has its interrupt line be as the device says, once its guest finds its registers as they are.
    pub(crate) fn drive(&self) {
        settle(
            || self.device.lock(&*self.world).level(),
            |level| self.lines.set(self.interrupt, level),
        );
    }

    /// The same for a thread that its vCPUs are not to hold up: where the line does not settle at once, the thread of the
    /// devices sees to it.
    fn drive_soon(&self) {
        let level = || {
            let mut registers = self.device.lock_within(PATIENCE, &*self.world)?;
            Some(registers.level())
        };
        let driven = level();
        if let Some(level) = driven {
            self.lines.set(self.interrupt, level);
        }
        if driven.is_none() || level() != driven {
            self.goes_on();
            self.bell.ring();
        }
    }

    /// Serves the requests of its driver, until there are no more, or `is_over`.
    pub(crate) fn serve(&self, ram: &Ram<'_>, is_over: impl Fn() -> bool) {
        if !self.take_notice() {
            return;
        }
        while self.act(|device| device.serve(ram)) == Served::One && !is_over() {
            threads::preemption_point();
        }
    }
}

/// Does something with a device. Returns whether its guest is to be told by that what it did not know.
fn telling<D: virtio::Device, T>(
    device: &mut Mmio<D>,
    then: impl FnOnce(&mut Mmio<D>) -> T,
) -> (T, bool) {
    let before = (device.interrupt_status(), device.is_broken());
    let done = then(device);
    (done, before != (device.interrupt_status(), device.is_broken()))
}

impl<D: virtio::Device, S> Virtio<D, S> {
    /// A vCPU writes to its registers. Returns whether it has notified the device, whose thread comes back to it.
    pub(super) fn write_register(&self, offset: u64, data: &[u8]) -> bool {
        let written = self.device.lock(&*self.world).write(offset, data);
        match written {
            // Release: the thread that takes it sees what the driver wrote before.
            Written::Notified => self.look_again(),
            Written::Acknowledged => self.acknowledge(),
            Written::Changed => self.drive(),
        }
        written == Written::Notified
    }

    /// The driver has acknowledged what it was told of: the line falls, since its interrupt is an edge.
    fn acknowledge(&self) {
        fall(
            || self.device.lock(&*self.world).level(),
            |level| self.lines.set(self.interrupt, level),
        );
    }
}

impl<D: virtio::Device + Send + 'static, S: Send + 'static> Device for Virtio<D, S> {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        self.with(|device| device.read(offset, data));
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        self.write_register(offset, data);
    }
}
