//! What a guest gives memory back by: a balloon, and reports of free pages. The frames are free before the driver hears that
//! its request is done.
//!
//! The monitor says how much the guest is asked for, without a lock that anybody sleeps for: the thread of the VM's devices
//! tells the device.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_devices::virtio::{Balloon, Contents, MOST_RANGES, Mmio, PAGE_BYTES, Served};
use mayfly_vm::Device;

use super::arch::{BALLOON_INTERRUPT, MEMORY, registers};
use super::lines::Lines;
use super::virtio::{Ram, Virtio};
use crate::bare::processor::timer;
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;

/// The most pieces of requests in one turn of the thread, which serves the VM's other devices, too.
const PIECES: u32 = 8;

/// Nothing is asked for anew.
const NOTHING: u64 = u64::MAX;

/// The balloon of a VM, for one run of it.
pub(crate) struct GivenBack {
    virtio: Virtio<Balloon, ()>,
    /// How many pages the monitor has asked for since the thread looked last, or [`NOTHING`].
    asked: AtomicU64,
    /// The pages that the guest can give back: those before what the program shows it in its memory.
    pages: Range<u64>,
    /// How many frames were freed, and how many ticks that took, from the driver's notice until it is told.
    freed: AtomicU64,
    ticks: AtomicU64,
}

pub(super) fn make((): ()) -> Mmio<Balloon> {
    Mmio::new(Balloon::new())
}

impl GivenBack {
    /// The balloon of a VM with so many bytes of memory, as after a reset.
    pub(super) fn new(
        world: &Arc<World>,
        memory: u64,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Self {
        Self::of(Virtio::new(world, (), make, lines, BALLOON_INTERRUPT, bell), memory)
    }

    /// One that goes on as another one was.
    pub(super) fn made(
        world: &Arc<World>,
        balloon: Box<Mmio<Balloon>>,
        memory: u64,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Self {
        Self::of(Virtio::made(world, balloon, make, lines, BALLOON_INTERRUPT, bell), memory)
    }

    fn of(virtio: Virtio<Balloon, ()>, memory: u64) -> Self {
        let pages = MEMORY / PAGE_BYTES..registers(memory) / PAGE_BYTES;
        Self {
            virtio,
            asked: AtomicU64::new(NOTHING),
            pages,
            freed: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        }
    }

    /// The device.
    pub(super) fn virtio(&self) -> &Virtio<Balloon, ()> {
        &self.virtio
    }

    /// Asks the guest for so many pages, from now on.
    pub(crate) fn ask_for(&self, pages: u32) {
        self.asked.store(pages.into(), Ordering::Relaxed);
        self.virtio.look_again();
    }

    /// How many pages it asks for, and how many its guest says that it has; unless its vCPUs keep its lock from the caller.
    pub(crate) fn pages(&self) -> Option<(u32, u32)> {
        self.virtio.with_soon(|balloon| (balloon.device().target(), balloon.device().actual()))
    }

    /// How many frames were freed in all, and the nanoseconds that it took.
    pub(crate) fn freed(&self) -> (u64, u64) {
        let ticks = self.ticks.load(Ordering::Relaxed);
        (self.freed.load(Ordering::Relaxed), timer::instant(ticks).as_nanos())
    }

    /// Frees what its driver gives back of `memory`, until there is no more, or `is_over`; or until others are to have their
    /// turn.
    #[inline(never)]
    pub(super) fn serve(&self, ram: &Ram<'_>, memory: &GuestMemory, is_over: impl Fn() -> bool) {
        if !self.virtio.take_notice() {
            return;
        }
        let asked = self.asked.swap(NOTHING, Ordering::Relaxed);
        if let Ok(pages) = u32::try_from(asked) {
            self.virtio.with(|balloon| balloon.ask_for(pages));
            self.virtio.drive();
        }
        for number in 1.. {
            let begin = timer::ticks();
            let served = self.virtio.with(|balloon| {
                balloon.take_pages(ram, |pages, contents| self.free(memory, pages, contents))
            });
            self.virtio.drive();
            self.ticks.fetch_add(timer::ticks() - begin, Ordering::Relaxed);
            if served == Served::Nothing || is_over() {
                return;
            }
            if number == PIECES {
                return self.virtio.look_again();
            }
            threads::preemption_point();
        }
    }

    /// Frees those of `pages` that are the guest's to give back, by their numbers in its memory.
    fn free(&self, memory: &GuestMemory, pages: &[Range<u64>], contents: Contents) {
        let mut own = [const { 0..0 }; MOST_RANGES];
        let mut count = 0;
        for range in pages {
            let (start, end) = (range.start.max(self.pages.start), range.end.min(self.pages.end));
            if start < end {
                own[count] = start - self.pages.start..end - self.pages.start;
                count += 1;
            }
        }
        let freed = memory.give_back(&own[..count], contents);
        self.freed.fetch_add(freed, Ordering::Relaxed);
    }
}

impl Device for GivenBack {
    fn read(&self, vcpu: u32, offset: u64, data: &mut [u8]) {
        self.virtio.read(vcpu, offset, data);
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        self.virtio.write_register(offset, data);
    }
}
