//! Every allocation is refused once.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Device, bus, eventfd, host, range};
use mayfly_iobus::{Error, IoBus, LastHit, Refused, Relocation, WriteHit};
use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::Srcu;

/// The system's allocator, which refuses one allocation of a thread that asks for it.
struct Stingy;

thread_local! {
    /// How many more allocations of this thread succeed before one is refused.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

// SAFETY: as `System`, which does the work; a null pointer is how an allocator refuses.
unsafe impl GlobalAlloc for Stingy {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                core::ptr::null_mut()
            }
            left => {
                LEFT.set(left.map(|left| left - 1));
                // SAFETY: the caller's promise is the same.
                unsafe { System.alloc(layout) }
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: it came from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Stingy = Stingy;

/// Runs `work`, in which allocation `n` (from 0) is refused. Also returns whether there was such an allocation.
fn refusing<T>(n: usize, work: impl FnOnce() -> T) -> (T, bool) {
    LEFT.set(Some(n));
    let result = work();
    (result, LEFT.take().is_none())
}

/// A bus with three devices and an ioeventfd.
struct Fixture {
    domain: Srcu,
    bus: IoBus<Device>,
    living: Arc<AtomicUsize>,
}

impl Fixture {
    fn new() -> Self {
        let (domain, bus) = bus();
        let living = Arc::default();
        for n in 0..3 {
            bus.register(range(n * 16, 8), Device::new(n, &living)).unwrap();
        }
        bus.register_eventfd(eventfd(4, 4, Some(1)), Device::new(3, &living)).unwrap();
        Self { domain, bus, living }
    }

    fn assert_unchanged(&self) {
        let section = self.domain.read_lock();
        let mut last = LastHit::default();
        for address in 0..64 {
            let hit = self.bus.find(&section, &mut last, address, 1);
            let expected = (address < 48 && address % 16 < 8).then_some(address / 16);
            assert_eq!(hit.map(|hit| hit.device.id), expected);
        }
        let doorbell = self.bus.find_write(&section, &mut last, 4, 4, 1);
        assert!(matches!(doorbell, Some(WriteHit::Eventfd(device)) if device.id == 3));
        let other = self.bus.find_write(&section, &mut last, 4, 4, 2);
        assert!(matches!(other, Some(WriteHit::Device(hit)) if hit.device.id == 0));
        drop(section);
        self.domain.barrier();
        assert_eq!(self.living.load(Ordering::Relaxed), 4);
    }

    /// Refuses each allocation of `change` in turn, until it succeeds; then `undo` makes the bus as it was.
    fn exhaust<T, E: Debug>(
        &self,
        change: impl Fn(&IoBus<Device>) -> Result<T, E>,
        reason: impl Fn(E) -> Error,
        undo: impl FnOnce(T),
    ) {
        for n in 0.. {
            let (result, refused) = refusing(n, || change(&self.bus));
            match result {
                Err(error) => {
                    assert!(refused);
                    assert_eq!(reason(error), Error::OutOfMemory(OutOfMemory));
                    self.assert_unchanged();
                }
                Ok(done) => {
                    assert!(!refused, "allocation {n} was refused, and nobody noticed");
                    assert!(n > 0, "nothing was allocated");
                    undo(done);
                    self.assert_unchanged();
                    break;
                }
            }
        }
    }
}

/// The reason, if the device came back with it.
fn came_back(refused: Refused<Device>) -> Error {
    let Refused { error, device } = refused;
    assert_eq!(device.id, 9);
    device.assert_alive();
    error
}

#[test]
fn a_device_that_there_is_no_memory_to_register_comes_back_and_the_bus_is_as_before() {
    let fixture = Fixture::new();
    let device = || Device::new(9, &fixture.living);
    fixture.exhaust(
        |bus| bus.register(range(8, 4), device()),
        came_back,
        |()| {
            assert_eq!(fixture.bus.unregister(range(8, 4)).unwrap().id, 9);
        },
    );
    let on = eventfd(4, 4, Some(2));
    fixture.exhaust(
        |bus| bus.register_eventfd(on, device()),
        came_back,
        |()| {
            assert_eq!(fixture.bus.unregister_eventfd(on).unwrap().id, 9);
        },
    );
}

#[test]
fn a_device_that_there_is_no_memory_to_unregister_stays() {
    let fixture = Fixture::new();
    let reason = |error| error;
    fixture.exhaust(
        |bus| bus.unregister(range(16, 8)),
        reason,
        |device| fixture.bus.register(range(16, 8), device).unwrap(),
    );
    let on = eventfd(4, 4, Some(1));
    fixture.exhaust(
        |bus| bus.unregister_eventfd(on),
        reason,
        |device| fixture.bus.register_eventfd(on, device).unwrap(),
    );
}

#[test]
fn a_device_that_there_is_no_memory_to_move_stays_where_it_is() {
    let fixture = Fixture::new();
    let moves = [
        Relocation::Device { from: range(16, 8), to: range(100, 8) },
        Relocation::Eventfd { from: eventfd(4, 4, Some(1)), to: eventfd(104, 4, None) },
    ];
    let back = moves.map(|relocation| match relocation {
        Relocation::Device { from, to } => Relocation::Device { from: to, to: from },
        Relocation::Eventfd { from, to } => Relocation::Eventfd { from: to, to: from },
    });
    let undo = || fixture.bus.try_relocate(&back).unwrap();
    fixture.exhaust(|bus| bus.try_relocate(&moves), |error| error, |()| undo());
    let reader = fixture.domain.reader().unwrap();
    let inside = |bus: &IoBus<Device>| {
        let _section = reader.lock();
        bus.try_relocate(&moves)
    };
    fixture.exhaust(inside, |error| error, |()| undo());
}

#[test]
fn an_edit_that_there_is_no_memory_for_changes_nothing() {
    const ADDED: u64 = if cfg!(miri) { 3 } else { 20 };
    let fixture = Fixture::new();
    let edit = |bus: &IoBus<Device>| {
        let ((), replaced) = bus.edit(|edit| {
            edit.remove(range(0, 8))?;
            for n in 0..ADDED {
                edit.insert(range(100 + n, 1), Device::new(9, &fixture.living))?;
                edit.insert_eventfd(eventfd(100 + n, 1, None), Device::new(9, &fixture.living))?;
            }
            edit.remove_eventfd(eventfd(4, 4, Some(1)))
        })?;
        Ok(replaced.synchronize_expedited())
    };
    let undo = |removed: mayfly_iobus::Devices<Device>| {
        let mut removed = removed;
        let ((), replaced) = fixture
            .bus
            .edit(|edit| {
                for n in 0..ADDED {
                    edit.remove(range(100 + n, 1))?;
                    edit.remove_eventfd(eventfd(100 + n, 1, None))?;
                }
                edit.insert(range(0, 8), removed.next().unwrap())?;
                edit.insert_eventfd(eventfd(4, 4, Some(1)), removed.next().unwrap())?;
                Ok::<_, Error>(())
            })
            .unwrap();
        assert_eq!(replaced.synchronize().len(), 2 * ADDED as usize);
    };
    fixture.exhaust(edit, |error: Error| error, undo);
}

#[test]
fn getting_rid_of_the_old_version_and_of_devices_allocates_nothing() {
    let fixture = Fixture::new();
    let _reader = fixture.domain.reader().unwrap();
    let remove = |n: u64| fixture.bus.remove(range(n * 16, 8)).unwrap();
    let (first, second, third) = (remove(0), remove(1), remove(2));
    let fourth = fixture.bus.remove_eventfd(eventfd(4, 4, Some(1))).unwrap();
    let ((), refused) = refusing(0, || {
        first.defer();
        second.defer_expedited();
        drop(third.synchronize_expedited());
        fourth.try_defer().unwrap();
    });
    assert!(!refused);
}

#[test]
fn a_bus_that_there_is_no_memory_for_is_an_error() {
    let (domain, _) = bus::<()>();
    let platform = host();
    let (bus, refused) = refusing(0, || IoBus::<()>::try_new(&domain, platform));
    assert!(refused);
    assert_eq!(bus.unwrap_err(), OutOfMemory);
}
