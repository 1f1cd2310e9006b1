//! Many writers at once: each has a part of its own to change, and all change the same thing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use mayfly_iobus::{IoBus, IoRange};
use mayfly_memslot::{Flags, Gpa, Hva, MemSlots, PAGE_SIZE, Region, SlotId};
use vm_memory::{
    GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
    GuestRegionMmap,
};

use crate::bus::{Device, device};

/// How many writers there are.
pub const WRITERS: u16 = 64;

/// How often each adds its part and takes it away, in one batch.
const TIMES: u32 = 16;

/// The changes of a batch.
pub const CHANGES: u32 = WRITERS as u32 * TIMES * 2;

/// Bytes of a part, and from one part's first address to the next one's.
const LEN: u64 = 16 * PAGE_SIZE;
const STRIDE: u64 = 2 * LEN;

/// What a writer does once: number of the writer.
pub type Change = Arc<dyn Fn(u16) + Send + Sync>;

/// [`WRITERS`] threads that sleep until they are to write.
#[derive(Debug)]
pub struct Crowd {
    /// Met by all, and by the thread that measures, before a batch and behind it.
    barrier: Arc<Barrier>,
    ends: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Threads that can do any of `changes`.
    pub fn new(changes: &[Change]) -> Self {
        let barrier = Arc::new(Barrier::new(usize::from(WRITERS) + 1));
        let (ends, which) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..WRITERS).map(|writer| {
            let (barrier, ends) = (Arc::clone(&barrier), Arc::clone(&ends));
            let (which, changes) = (Arc::clone(&which), changes.to_vec());
            thread::spawn(move || {
                loop {
                    barrier.wait();
                    if ends.load(Ordering::Acquire) {
                        return;
                    }
                    let change = &changes[which.load(Ordering::Acquire)];
                    (0..TIMES).for_each(|_| change(writer));
                    barrier.wait();
                }
            })
        });
        let threads = threads.collect();
        Self { barrier, ends, which, threads }
    }

    /// Has all of them make change number `which`, [`CHANGES`] changes in all. Returns when all are done.
    pub fn write(&self, which: usize) {
        self.which.store(which, Ordering::Release);
        self.barrier.wait();
        self.barrier.wait();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.barrier.wait();
        for thread in self.threads.drain(..) {
            // Its panic, if any, has been reported by its own message.
            let _ = thread.join();
        }
    }
}

/// Adds a memslot and takes it away; waits for the readers that may still use what is gone, if it is to.
///
/// # Panics
///
/// If there is no memory for it.
pub fn slots(slots: Arc<MemSlots<Hva>>, waits: bool) -> Change {
    Arc::new(move |writer| {
        let gpa = u64::from(writer) * STRIDE;
        let (slot, backing) = (SlotId::main(writer), Hva::new(0x7f00_0000_0000 + gpa));
        for size in [LEN, 0] {
            let gpa = Gpa::new(gpa);
            let region = Region { slot, flags: Flags::empty(), gpa, size, backing };
            let change = slots.apply(&region).expect("no two slots overlap");
            let change = change.expect("it was not so before");
            if waits {
                let _edit = change.settle();
            } else {
                change.retired.defer();
            }
        }
    })
}

/// The same of vm-memory's regions, whose writers wait for no reader.
///
/// # Panics
///
/// If there is no memory for it.
pub fn regions() -> Change {
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::<()>::new());
    let region = |writer: u16| {
        let start = GuestAddress(u64::from(writer) * STRIDE);
        let region = GuestRegionMmap::<()>::from_range(start, LEN as usize, None);
        (start, Arc::new(region.expect("the host maps some memory")))
    };
    let regions: Vec<_> = (0..WRITERS).map(region).collect();
    Arc::new(move |writer| {
        let (start, region) = &regions[usize::from(writer)];
        let writing = memory.lock().expect("no writer panics");
        let more = memory.memory().insert_region(Arc::clone(region));
        writing.replace(more.expect("no two regions overlap"));
        let writing = memory.lock().expect("no writer panics");
        let less = memory.memory().remove_region(*start, LEN);
        writing.replace(less.expect("it is there").0);
        debug_assert!(memory.memory().num_regions() <= usize::from(WRITERS));
    })
}

/// Adds a device to a bus, and takes it away.
///
/// # Panics
///
/// If there is no memory for it.
pub fn devices(bus: Arc<IoBus<Device>>) -> Change {
    let devices: Vec<Device> = (0..u64::from(WRITERS)).map(device).collect();
    Arc::new(move |writer| {
        let range = IoRange { start: u64::from(writer) * STRIDE, len: LEN };
        let added = bus.register(range, Arc::clone(&devices[usize::from(writer)]));
        assert!(added.is_ok(), "no two devices overlap");
        bus.remove(range).expect("it is there").defer();
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use mayfly_memslot::AddressSpace;
    use mayfly_platform::{Host, Platform};

    use super::*;
    use crate::sections;

    #[test]
    fn every_writer_makes_each_of_its_changes_once_a_time() {
        let counts: Arc<Vec<AtomicU32>> =
            Arc::new((0..WRITERS).map(|_| AtomicU32::new(0)).collect());
        let theirs = Arc::clone(&counts);
        let count: Change = Arc::new(move |writer| {
            theirs[usize::from(writer)].fetch_add(1, Ordering::Relaxed);
        });
        let crowd = Crowd::new(&[Arc::new(|_| ()), count]);
        crowd.write(0);
        crowd.write(1);
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == TIMES));
    }

    #[test]
    fn what_is_added_is_taken_away_again() {
        let host: Arc<dyn Platform> = Arc::new(Host::new());
        let domain = sections::domain(Arc::clone(&host));
        let all = Arc::new(MemSlots::try_new(Arc::clone(&host), &domain).unwrap());
        let bus = Arc::new(IoBus::try_new(&domain, host).unwrap());
        let changes = [slots(Arc::clone(&all), true), slots(Arc::clone(&all), false), regions()];
        let changes = changes.into_iter().chain([devices(bus)]);
        for change in changes {
            Crowd::new(&[change]).write(0);
        }
        let section = domain.read_lock();
        assert!(all.load(AddressSpace::Main, &section).is_empty());
    }
}
