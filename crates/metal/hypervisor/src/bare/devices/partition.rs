//! A disk that is a partition of the machine's disk.
//!
//! The thread of the VM's devices takes requests of the driver, some at a time (*flights*). It cuts each into pieces, which
//! the machine's disk carries out, several at a time. When the last piece of a request has ended, the request is answered.
//! The thread waits for none of them: a piece that has ended rings its bell.
//!
//! **Order.** A flush is passed on when it is taken. What was answered as written before that has been written by the
//! machine's disk, so the flush of the machine's disk is for that, too. Requests that are under way together have no order,
//! on any disk. If the driver has begun anew, what it asked for before is over before anything else is started.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use mayfly_devices::virtio::{DiskError, Mmio, Remote, Request, Taken, Work};
use mayfly_drivers::{Broken, Operation};
use mayfly_vm::Device;
use mayfly_vm::platform::lock::Lock;

use super::arch::Controller;
use super::virtio::{Ram, Virtio};
use crate::bare::own::tenant::{Done, PieceSlot, Tenant};
use crate::bare::processor::timer;
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;

/// The most requests of a VM that are under way.
const FLIGHTS: usize = 8;
/// How long the end of a run waits for what is under way, in seconds.
const PATIENCE: u64 = 10;

/// What the device is made of.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    sectors: u64,
    is_read_only: bool,
}

/// A request that is under way, if there is one.
struct Flight {
    request: Request,
    work: Option<Work>,
    /// How many bytes of it were started, and how many pieces of these have not ended.
    started: u64,
    pieces: u32,
    has_failed: bool,
}

struct Flights {
    all: Vec<Flight>,
    /// The driver may have asked for more.
    has_more: bool,
}

/// The disk of a VM.
pub(crate) struct Partition {
    world: Arc<World>,
    virtio: Arc<Virtio<Remote, Shape>>,
    tenant: Arc<Tenant>,
    bell: Arc<Bell>,
    run: u32,
    flights: Lock<Flights>,
}

impl Flight {
    const fn new() -> Self {
        Self { request: Request::new(), work: None, started: 0, pieces: 0, has_failed: false }
    }

    /// How many bytes its pieces have; one for a flush.
    fn len(&self) -> u64 {
        match self.work {
            Some(Work::Read(_, len) | Work::Write(_, len)) => len,
            Some(Work::Flush) => 1,
            None => 0,
        }
    }

    fn is_over(&self) -> bool {
        self.work.is_some() && self.pieces == 0 && (self.has_failed || self.started == self.len())
    }

    fn is_to_be_started(&self) -> bool {
        self.work.is_some() && !self.has_failed && self.started < self.len()
    }
}

impl Partition {
    /// The disk as after a reset. A run of the VM begins.
    pub(crate) fn new(
        world: &Arc<World>,
        tenant: Arc<Tenant>,
        line: &Arc<Controller>,
        interrupt: u32,
        bell: &Arc<Bell>,
    ) -> Self {
        let make = |Shape { sectors, is_read_only }| {
            Mmio::new(Remote::new(sectors, is_read_only, "mayfly"))
        };
        let shape = Shape { sectors: tenant.sectors(), is_read_only: tenant.is_read_only() };
        let virtio = Arc::new(Virtio::new(world, shape, make, line, interrupt, bell));
        let run = tenant.begin(bell);
        let all = (0..FLIGHTS).map(|_| Flight::new()).collect();
        let flights = Lock::new(Flights { all, has_more: false });
        Self { world: Arc::clone(world), virtio, tenant, bell: Arc::clone(bell), run, flights }
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
        let mut flights = self.flights.lock(&*self.world);
        if self.virtio.take_notice() {
            flights.has_more = true;
        }
        while !is_over() {
            let has_worked = self.take_ended(&mut flights, ram)
                || self.start(&mut flights, ram)
                || self.take(&mut flights, ram);
            if !has_worked {
                break;
            }
            threads::preemption_point();
        }
    }

    /// Takes a piece that has ended, if there is one.
    fn take_ended(&self, flights: &mut Flights, ram: &Ram<'_>) -> bool {
        let Some(slot) = self.tenant.next_ended() else { return false };
        let piece = slot.waiter.as_ref().filter(|piece| piece.run == self.run);
        let place = piece.map(|piece| (piece.flight, piece.offset));
        let flight =
            place.and_then(|(flight, offset)| Some((flights.all.get_mut(flight)?, offset)));
        if let Some((flight, offset)) = flight {
            // What a flush or a write has read is nothing.
            let put = slot.result().map_err(|_| DiskError).and_then(|bytes| {
                flight
                    .request
                    .put(offset * u64::from(!bytes.is_empty()), bytes, ram)
                    .map_err(|_| DiskError)
            });
            flight.has_failed |= put.is_err();
            flight.pieces -= 1;
            self.answer_if_over(flight, ram);
        }
        self.tenant.give_back(slot);
        true
    }

    fn answer_if_over(&self, flight: &mut Flight, ram: &Ram<'_>) {
        if !flight.is_over() {
            return;
        }
        let done = &self.tenant.done;
        let result = if flight.has_failed { Err(DiskError) } else { Ok(()) };
        let (count, by) = match flight.work.take() {
            _ if flight.has_failed => (&done.errors, 1),
            Some(Work::Read(_, len)) => (&done.read, len),
            Some(Work::Write(_, len)) => (&done.written, len),
            _ => (&done.flushes, 1),
        };
        count.fetch_add(by, Ordering::Relaxed);
        self.virtio.with(|device| device.answer(&flight.request, result, ram));
        self.virtio.drive();
    }

    /// Starts a piece of a request that was taken, if there is one, and room.
    fn start(&self, flights: &mut Flights, ram: &Ram<'_>) -> bool {
        let is_waiting = |flight: &&Flight| {
            let is_before = |other: &Flight| {
                other.work.is_some() && !other.request.is_as_old_as(&flight.request)
            };
            flight.is_to_be_started() && !flights.all.iter().any(is_before)
        };
        let Some(number) = flights.all.iter().position(|flight| is_waiting(&flight)) else {
            return false;
        };
        let flight = &mut flights.all[number];
        let offset = flight.started;
        match self.tenant.room(self.run, number, offset) {
            Ok(None) => return false,
            Ok(Some(slot)) => self.start_piece(flight, slot, ram),
            Err(Broken) => flight.has_failed = true,
        }
        self.answer_if_over(flight, ram);
        true
    }

    fn start_piece(&self, flight: &mut Flight, mut slot: PieceSlot, ram: &Ram<'_>) {
        let len = (flight.len() - flight.started).min(self.tenant.most());
        let Some(work) = flight.work else { return self.tenant.give_back(slot) };
        let operation = match work {
            Work::Read(start, _) => Operation::Read(start + flight.started, len as usize),
            Work::Write(start, _) => {
                if flight.request.get(flight.started, slot.data(len as usize), ram).is_err() {
                    flight.has_failed = true;
                    return self.tenant.give_back(slot);
                }
                Operation::Write(start + flight.started, len as usize)
            }
            Work::Flush if !self.tenant.has_cache() => {
                flight.started = 1;
                return self.tenant.give_back(slot);
            }
            Work::Flush => Operation::Flush,
        };
        match self.tenant.start(slot, operation) {
            Ok(()) => {
                flight.started += len;
                flight.pieces += 1;
            }
            Err(slot) => {
                flight.has_failed = true;
                self.tenant.give_back(slot);
            }
        }
    }

    /// Takes the next request of the driver, if there is one, and a flight for it.
    fn take(&self, flights: &mut Flights, ram: &Ram<'_>) -> bool {
        if !flights.has_more {
            return false;
        }
        let Some(number) = flights.all.iter().position(|flight| flight.work.is_none()) else {
            return false;
        };
        let flight = &mut flights.all[number];
        match self.virtio.with(|device| device.take_request(&mut flight.request, ram)) {
            Taken::Nothing => {
                // Also where its rings made no sense.
                self.virtio.drive();
                flights.has_more = false;
                return false;
            }
            Taken::Answered => self.virtio.drive(),
            Taken::Work(work) => {
                flight.work = Some(work);
                (flight.started, flight.pieces, flight.has_failed) = (0, 0, false);
                // One of no bytes is over at once.
                self.answer_if_over(flight, ram);
                self.give_up_before(flights, number, ram);
            }
        }
        true
    }

    /// Starts no more of what the driver has asked for before it has begun anew, if it has.
    fn give_up_before(&self, flights: &mut Flights, number: usize, ram: &Ram<'_>) {
        let (before, rest) = flights.all.split_at_mut(number);
        let Some((newest, after)) = rest.split_first_mut() else { return };
        for other in before.iter_mut().chain(after) {
            if other.work.is_some() && !other.request.is_as_old_as(&newest.request) {
                other.has_failed = true;
                self.answer_if_over(other, ram);
            }
        }
    }

    /// The run is over. Waits until what is under way has ended, for ten seconds at most. Returns whether it has.
    pub(crate) fn end(&self) -> bool {
        let deadline = timer::ticks() + PATIENCE * timer::frequency();
        loop {
            let seen = self.bell.rung();
            while let Some(slot) = self.tenant.next_ended() {
                self.tenant.give_back(slot);
                threads::preemption_point();
            }
            if !self.tenant.is_busy() || timer::ticks() >= deadline {
                break;
            }
            self.bell.wait(seen, deadline);
        }
        self.tenant.end();
        !self.tenant.is_busy()
    }
}
