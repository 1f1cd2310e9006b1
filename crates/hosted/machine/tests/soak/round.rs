//! A machine, a VM with slots that change, and everybody who changes something; and its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mayfly_hwtrace::Options;
use mayfly_machine::address_space::{Backing, Protection};
use mayfly_machine::merger::{Merger, Tunables};
use mayfly_machine::{Checked, Machine, MachineVm, VmOptions};
use mayfly_memslot::{Hva, PAGE_SIZE};
use mayfly_stage2::Format;
use mayfly_vm::{SlotZap, Vm};

use crate::book::{Book, HUGE, HUGES, PAGES, SMALL, SMALLS};
use crate::crew::{Crew, Seat};
use crate::random::Random;
use crate::tally::Tally;
use crate::{guests, host, kicks, slots, vms};

/// Few, so that they are soon given to somebody else: the slots' memory and its tables take a third.
const FRAMES: usize = 1 << 14;

/// What the threads of a round share.
pub(crate) struct Round<F: Format> {
    /// What hardware sees of it.
    checked: Checked,
    pub(crate) machine: Machine<F>,
    pub(crate) vm: MachineVm<F>,
    pub(crate) book: Book,
    pub(crate) tally: Tally,
    /// The memory of page 0 of the slots; the others follow.
    pub(crate) memory: Hva,
    /// Held by who maps or unmaps host memory, so that memory that is unmapped and mapped again is where it was: there
    /// is no other gap, and nobody else takes it.
    pub(crate) mapping: Mutex<()>,
    pub(crate) merger: Merger,
}

impl<F: Format> Round<F> {
    fn new(slot_zap: SlotZap, random: &mut Random) -> Self {
        let (coherent_swap, use_zero_pages) = (random.once_in(2), random.once_in(2));
        let machine = Machine::with_frames(FRAMES).unwrap();
        let (checked, sink) = Checked::up_to(checked_events(), Options::default());
        machine.hardware().record(sink);
        machine.hardware().arena().poison_freed();
        let options = VmOptions { slot_zap, coherent_swap, ..VmOptions::default() };
        let vm = machine.create_vm_with(options).unwrap();
        let map = |pages: usize, backing| {
            machine.space().mmap(pages as u64 * PAGE_SIZE, backing, Protection::ReadWrite).unwrap()
        };
        let memory = map(HUGES * HUGE, Backing::HugePages);
        let smalls = map(SMALLS * SMALL, Backing::Pages);
        assert_eq!(smalls.get(), memory.get() + (HUGES * HUGE) as u64 * PAGE_SIZE);
        let merger = Merger::new(Arc::clone(machine.space()));
        let eager = Tunables {
            pages_to_scan: 50,
            use_zero_pages,
            pages_to_merge: 8,
            ..Tunables::default()
        };
        merger.set(eager).unwrap();
        merger.register(memory..Hva::new(memory.get() + PAGES as u64 * PAGE_SIZE)).unwrap();
        let (book, tally, mapping) = (Book::new(), Tally::default(), Mutex::default());
        Self { checked, machine, vm, book, tally, memory, mapping, merger }
    }

    /// Where `page` of the slots' memory is.
    pub(crate) fn hva(&self, page: usize) -> Hva {
        Hva::new(self.memory.get() + page as u64 * PAGE_SIZE)
    }

    /// Destroys everything. Returns how many events of hardware were checked.
    fn end(self, seat: &Seat) -> u64 {
        let Self { checked, machine, vm, memory, merger, .. } = self;
        drop(merger);
        seat.at("destroying the VM");
        let (arena, handle) = (Arc::clone(machine.hardware().arena()), Vm::clone(&vm));
        vm.destroy();
        seat.at("waiting for its tables");
        handle.wait_reclaimed();
        assert_eq!(handle.stage2().frames(), 0);
        seat.at("waiting for what it deferred");
        handle.srcu().barrier();
        let stats = handle.srcu().stats();
        assert_eq!((stats.deferred, stats.deferred_bytes), (0, 0));
        drop(handle);
        seat.at("unmapping the memory");
        let end = Hva::new(memory.get() + PAGES as u64 * PAGE_SIZE);
        machine.space().munmap(memory..end).unwrap();
        assert_eq!(machine.space().swapped(), 0);
        seat.at("waiting for all frames");
        // VMs that lived beside were not waited for. One frame is the address space's, for all pages of zeroes.
        wait_until(|| arena.in_use() <= 1);
        assert_eq!(machine.reclaimer().frames(), 0);
        seat.at("ending the machine");
        drop(machine);
        wait_until(|| arena.in_use() == 0);
        assert_eq!(arena.in_use(), 0, "frames are lost");
        let events = checked.events();
        println!("{events} events of hardware checked");
        assert_eq!(checked.finish(), [], "what hardware sees breaks rules");
        events
    }
}

/// How many events of hardware are checked of a round, from its beginning on.
fn checked_events() -> u64 {
    std::env::var("MAYFLY_SOAK_EVENTS").map_or(u64::MAX, |events| {
        events.parse().expect("MAYFLY_SOAK_EVENTS is a number of events")
    })
}

/// Waits for something that is about to be so, but not for ever.
fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A round in format `F`. Adds what has happened to `total`, and returns how many events of hardware were checked.
pub(crate) fn run<F: Format>(slot_zap: SlotZap, random: &mut Random, total: &Tally) -> u64 {
    let round = Arc::new(Round::<F>::new(slot_zap, random));
    let mut crew = Crew::default();
    let mut start = |name: String, work: fn(&Arc<Round<F>>, &mut Random, &Seat)| {
        let (round, mut random) = (Arc::clone(&round), random.fork());
        crew.start(name, move |seat| {
            let _end = End(&round);
            work(&round, &mut random, seat);
        });
    };
    start("vCPU 0".into(), |round, random, seat| guests::live(round, 0, random, seat));
    start("vCPU 1".into(), |round, random, seat| guests::live(round, 1, random, seat));
    start("vCPU 2".into(), |round, random, seat| guests::live(round, 2, random, seat));
    start("slots".into(), slots::change);
    start("host memory".into(), host::change);
    start("merger".into(), host::merge);
    start("kicks".into(), kicks::kick);
    start("VMs".into(), vms::live_and_die);
    crew.join();

    println!("{}, {slot_zap:?}: {:?}", F::NAME, round.tally);
    total.add_all(&round.tally);
    let round = Arc::into_inner(round).expect("the threads are gone");
    let mut last = Crew::default();
    let events = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&events);
    last.start("end".into(), move |seat| told.store(round.end(seat), Ordering::Relaxed));
    last.join();
    events.load(Ordering::Relaxed)
}

/// Dropped when a thread ends; if that is a panic, the round is over for all.
struct End<'a, F: Format>(&'a Round<F>);

impl<F: Format> Drop for End<'_, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tally.end();
        }
    }
}
