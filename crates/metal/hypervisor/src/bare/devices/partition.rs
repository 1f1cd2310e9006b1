//! A disk that is a partition of the machine's disk.
//!
//! The thread of the VM's devices takes requests of the driver, some at a time, and starts pieces of them ([`Flights`]). The
//! thread waits for none: a piece that has ended rings its bell. When the last piece of a request has ended, the request is
//! answered.
//!
//! **Kept data.** A driver that does not flush has each write answered only when it is kept: the write's last piece is a
//! flush of the machine's disk.
//!
//! **Clearing.** A discard is passed on to the machine's disk, and is not offered if the machine's disk knows none: what is done
//! by writing would cost what a discard is to save. Sectors that are to be zero are passed on, too, or else are written. What is
//! passed on is cut into pieces, of which a VM has one under way at a time: so a neighbour's request waits for no more of it.
//!
//! **Overlays.** The partition may lie under memory of the VM's: then all that is written goes there, and what was written is
//! read from there ([`Overlay`]). That is done at once, a page at a time, and takes no room of the machine's disk. A flush has
//! nothing to do.
//!
//! **Order.** A flush is passed on when it is taken. What was answered as written before that has been written by the
//! machine's disk, so the flush of the machine's disk is for that, too. Requests that are under way together have no order,
//! on any disk.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use mayfly_devices::virtio::{Clearing, DiskError, Mmio, Remote, Request, Taken, Work};
use mayfly_drivers::{DiskInfo, Operation, SECTOR};
use mayfly_hypervisor::flights::{Extent, FLIGHTS, Flights, Next, Part, Piece};
use mayfly_vm::Device;
use mayfly_vm::platform::lock::Lock;

use super::lines::Lines;
use super::overlay::Overlay;
use super::virtio::{Ram, Virtio};
use crate::bare::own::tenant::{Done, PieceSlot, Tenant};
use crate::bare::processor::timer;
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;

/// How much is copied to an overlay, or from it, at a time.
const PAGE: usize = 4096;

/// The most sectors that a request has be zero where that is done by writing: no more than a request writes otherwise, of 8
/// MiB at most.
const ZEROES_WRITTEN: u32 = 16 << 10;

/// How long the end of a run waits for what is under way, in seconds.
const PATIENCE: u64 = 10;

/// What the device is made of.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    sectors: u64,
    is_read_only: bool,
    clearing: Clearing,
}

struct Requests {
    flights: Flights,
    /// What each flight is.
    all: Vec<(Request, Work)>,
    /// What is copied to an overlay, or from it; nothing if there is none.
    page: Vec<u8>,
    /// The driver may have asked for more.
    has_more: bool,
}

/// The disk of a VM.
pub(crate) struct Partition {
    world: Arc<World>,
    virtio: Arc<Virtio<Remote, Shape>>,
    tenant: Arc<Tenant>,
    overlay: Option<Overlay>,
    bell: Arc<Bell>,
    run: u32,
    requests: Lock<Requests>,
}

/// How a disk may be cleared that is written to the machine's, or to an overlay.
fn clearing(disk: DiskInfo, is_overlaid: bool) -> Clearing {
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR as u64).unwrap_or(u32::MAX);
    if is_overlaid {
        return Clearing { zeroes: ZEROES_WRITTEN, ..Clearing::default() };
    }
    Clearing {
        discards: sectors(disk.most_discarded),
        zeroes: if disk.most_zeroed == 0 { ZEROES_WRITTEN } else { sectors(disk.most_zeroed) },
        unmaps: disk.unmaps,
    }
}

impl Partition {
    /// The disk as after a reset. A run of the VM begins.
    pub(crate) fn new(
        world: &Arc<World>,
        tenant: Arc<Tenant>,
        over: Option<Arc<GuestMemory>>,
        lines: &Arc<Lines>,
        interrupt: u32,
        bell: &Arc<Bell>,
    ) -> Self {
        let make = |Shape { sectors, is_read_only, clearing }| {
            Mmio::new(Remote::new(sectors, is_read_only, "mayfly").with_clearing(clearing))
        };
        let sectors = tenant.sectors();
        let overlay = over.map(|memory| Overlay::new(memory, sectors));
        let is_read_only = tenant.is_read_only() && overlay.is_none();
        let clearing = clearing(tenant.disk(), overlay.is_some());
        let shape = Shape { sectors, is_read_only, clearing };
        let virtio = Arc::new(Virtio::new(world, shape, make, lines, interrupt, bell));
        let run = tenant.begin(bell);
        let all = (0..FLIGHTS).map(|_| (Request::new(), Work::Flush)).collect();
        let page = vec![0; if overlay.is_some() { PAGE } else { 0 }];
        let requests = Requests { flights: Flights::default(), all, page, has_more: false };
        let (world, bell, requests) = (Arc::clone(world), Arc::clone(bell), Lock::new(requests));
        Self { world, virtio, tenant, overlay, bell, run, requests }
    }

    /// The device.
    pub(super) fn virtio(&self) -> &Virtio<Remote, Shape> {
        &self.virtio
    }

    /// Its registers.
    pub(crate) fn registers(&self) -> Arc<dyn Device> {
        self.virtio.clone()
    }

    /// What became of its requests.
    pub(crate) fn done(&self) -> &Done {
        &self.tenant.done
    }

    /// Takes what has ended, and starts what the driver asks for, until there is nothing to do for now, or `is_over`.
    pub(crate) fn serve(&self, ram: &Ram<'_>, is_over: impl Fn() -> bool) {
        let mut requests = self.requests.lock(&*self.world);
        if self.virtio.take_notice() {
            requests.has_more = true;
        }
        while !is_over() {
            let has_worked = self.take_ended(&mut requests, ram)
                || self.start(&mut requests, ram)
                || self.take(&mut requests, ram);
            if !has_worked {
                break;
            }
            self.answer(&mut requests, ram);
            threads::preemption_point();
        }
    }

    /// Takes a piece that has ended, if there is one.
    fn take_ended(&self, requests: &mut Requests, ram: &Ram<'_>) -> bool {
        let Some(slot) = self.tenant.next_ended() else { return false };
        let piece = slot.waiter.as_ref().filter(|piece| piece.run == self.run);
        if let Some((flight, offset)) = piece.map(|piece| (piece.flight, piece.offset)) {
            let is_well = match (slot.result(), requests.all.get(flight)) {
                (Ok(bytes), Some((request, Work::Read(..)))) => self.virtio.with(|device| {
                    device.is_wanted(request) && request.put(offset, bytes, ram).is_ok()
                }),
                (result, _) => result.is_ok(),
            };
            requests.flights.has_ended(flight, is_well);
        }
        self.tenant.give_back(slot);
        true
    }

    /// Answers the requests that are over.
    fn answer(&self, requests: &mut Requests, ram: &Ram<'_>) {
        while let Some((flight, is_well)) = requests.flights.next_over() {
            let (request, work) = &requests.all[flight];
            let done = &self.tenant.done;
            let (count, by) = match *work {
                _ if !is_well => (&done.errors, 1),
                Work::Read(_, len) => (&done.read, len),
                Work::Write(_, len) | Work::WriteThrough(_, len) | Work::Zero { len, .. } => {
                    (&done.written, len)
                }
                Work::Discard { len, .. } => (&done.discarded, len),
                Work::Flush => (&done.flushes, 1),
            };
            count.fetch_add(by, Ordering::Relaxed);
            let result = if is_well { Ok(()) } else { Err(DiskError) };
            self.virtio.with(|device| device.answer(request, result, ram));
            self.virtio.drive();
        }
    }

    /// What some work is, of which a flush is a part if that is behind it.
    fn extent(&self, work: Work) -> Extent {
        let (len, keeps) = match work {
            Work::Read(_, len) | Work::Write(_, len) => (len, false),
            Work::WriteThrough(_, len) => (len, true),
            Work::Flush => (0, true),
            Work::Discard { len, is_through, .. } | Work::Zero { len, is_through, .. } => {
                (len, is_through)
            }
        };
        let clears = match work {
            Work::Discard { .. } => true,
            Work::Zero { .. } => self.zeroes_itself(),
            _ => false,
        };
        Extent { len, keeps, clears }
    }

    /// Sectors that are to be zero are made so by the machine's disk, and not written.
    fn zeroes_itself(&self) -> bool {
        self.tenant.disk().most_zeroed > 0 && self.overlay.is_none()
    }

    /// The most bytes of a piece of some work that the machine's disk takes.
    fn most(&self, work: Work) -> u64 {
        let disk = self.tenant.disk();
        match work {
            Work::Discard { .. } => disk.most_discarded,
            Work::Zero { .. } if self.zeroes_itself() => disk.most_zeroed,
            _ => disk.most as u64,
        }
    }

    /// Starts a piece, if there is one, and room for it.
    fn start(&self, requests: &mut Requests, ram: &Ram<'_>) -> bool {
        let Requests { flights, all, .. } = &mut *requests;
        let is_wanted = |flight: usize| self.virtio.with(|device| device.is_wanted(&all[flight].0));
        let piece = match flights.next(is_wanted, |flight| self.most(all[flight].1)) {
            None => return false,
            Some(Next::GivenUp) => return true,
            Some(Next::Begins(piece)) => piece,
        };
        let piece = match &self.overlay {
            None => piece,
            Some(overlay) => match self.carry_out(overlay, piece, requests, ram) {
                None => return true,
                Some(piece) => piece,
            },
        };
        match self.tenant.room(self.run, piece.flight, piece.part.offset()) {
            Ok(None) => return false,
            Ok(Some(slot)) => self.start_in(slot, piece, requests, ram),
            Err(_) => requests.flights.fail(piece.flight),
        }
        true
    }

    /// Carries out the beginning of a piece, if it is of the overlay. Otherwise returns what of the piece is the partition's.
    fn carry_out(
        &self,
        overlay: &Overlay,
        piece: Piece,
        requests: &mut Requests,
        ram: &Ram<'_>,
    ) -> Option<Piece> {
        let Requests { flights, all, page, .. } = requests;
        let Piece { flight, part } = piece;
        let (request, work) = &all[flight];
        let (part, is_well) = match (*work, part) {
            // An overlay offers no discards.
            (_, Part::Flush) | (Work::Flush | Work::Discard { .. }, _) => (part, true),
            (Work::Read(start, _), Part::Data { offset, len }) => {
                let found = overlay.part(start + offset, len);
                if let Ok((len, false)) = found {
                    return Some(Piece { flight, part: Part::Data { offset, len } });
                }
                let len = found.map_or(len, |(len, _)| len).min(PAGE as u64);
                let page = &mut page[..len as usize];
                let is_read = found.is_ok() && overlay.read(start + offset, page).is_ok();
                let is_put = self.virtio.with(|device| {
                    is_read && device.is_wanted(request) && request.put(offset, page, ram).is_ok()
                });
                (Part::Data { offset, len }, is_put)
            }
            (Work::Write(start, _) | Work::WriteThrough(start, _), Part::Data { offset, len }) => {
                let len = len.min(PAGE as u64);
                let page = &mut page[..len as usize];
                let is_there = self.virtio.with(|device| {
                    device.is_wanted(request) && request.get(offset, page, ram).is_ok()
                });
                let is_written = is_there && overlay.write(start + offset, page).is_ok();
                (Part::Data { offset, len }, is_written)
            }
            (Work::Zero { start, .. }, Part::Data { offset, len }) => {
                let len = len.min(PAGE as u64);
                let page = &mut page[..len as usize];
                page.fill(0);
                (Part::Data { offset, len }, overlay.write(start + offset, page).is_ok())
            }
        };
        flights.has_begun(Piece { flight, part });
        flights.has_ended(flight, is_well);
        None
    }

    fn start_in(&self, mut slot: PieceSlot, piece: Piece, requests: &mut Requests, ram: &Ram<'_>) {
        let (request, work) = &requests.all[piece.flight];
        let flight = piece.flight;
        let operation = match (*work, piece.part) {
            (Work::Read(start, _), Part::Data { offset, len }) => {
                Operation::Read(start + offset, len as usize)
            }
            (Work::Write(start, _) | Work::WriteThrough(start, _), Part::Data { offset, len }) => {
                let data = slot.data(len as usize);
                let is_there = self.virtio.with(|device| {
                    device.is_wanted(request) && request.get(offset, data, ram).is_ok()
                });
                if !is_there {
                    requests.flights.fail(flight);
                    return self.tenant.give_back(slot);
                }
                Operation::Write(start + offset, len as usize)
            }
            (Work::Discard { start, .. }, Part::Data { offset, len }) => {
                Operation::Discard(start + offset, len)
            }
            (Work::Zero { start, unmaps, .. }, Part::Data { offset, len })
                if self.zeroes_itself() =>
            {
                Operation::Zero(start + offset, len, unmaps)
            }
            (Work::Zero { start, .. }, Part::Data { offset, len }) => {
                slot.data(len as usize).fill(0);
                Operation::Write(start + offset, len as usize)
            }
            (_, Part::Flush) | (Work::Flush, _) => Operation::Flush,
        };
        requests.flights.has_begun(piece);
        // A disk without a cache has written when it says so.
        let started = if operation == Operation::Flush && !self.tenant.disk().has_cache {
            requests.flights.has_ended(flight, true);
            Err(slot)
        } else {
            self.tenant.start(slot, operation).inspect_err(|_| {
                requests.flights.has_ended(flight, false);
            })
        };
        if let Err(slot) = started {
            self.tenant.give_back(slot);
        }
    }

    /// Takes the next request of the driver, if there is one, and room for it.
    fn take(&self, requests: &mut Requests, ram: &Ram<'_>) -> bool {
        let Some(flight) = requests.flights.vacancy().filter(|_| requests.has_more) else {
            return false;
        };
        let (request, kept) = &mut requests.all[flight];
        match self.virtio.with(|device| device.take_request(request, ram)) {
            Taken::Nothing => {
                // Also where its rings made no sense.
                self.virtio.drive();
                requests.has_more = false;
                return false;
            }
            Taken::Answered => self.virtio.drive(),
            Taken::Work(work) => {
                *kept = work;
                requests.flights.begin(flight, self.extent(work), request.epoch());
            }
        }
        true
    }

    /// The run is over. Waits until what is under way has ended, for ten seconds at most. Returns whether it has.
    pub(crate) fn end(&self) -> bool {
        let deadline = timer::ticks() + PATIENCE * timer::frequency();
        loop {
            let seen = self.bell.rung();
            let is_busy = self.tenant.is_busy();
            if !is_busy || timer::ticks() >= deadline {
                self.tenant.end();
                return !is_busy;
            }
            self.bell.wait(seen, deadline);
        }
    }
}
