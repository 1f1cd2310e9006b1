//! What an embedder and its host do to a VM, side by side, while its guests run: a log that is kept for a migration,
//! pages that are merged and moved, a slot that comes, moves and goes; and the end of the VM, or of its memory, in the
//! middle of any of it.

use std::sync::Mutex;

use mayfly_platform::address::Gfn;

use super::*;

/// Where the second slot shows pages of the first one's memory: at one of these, in turn.
const PLACES: [u64; 2] = [PAGES, PAGES + 2];
const SHOWN: u64 = 4;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(600, 200, model);
}

fn window(place: u64) -> Region<Hva> {
    Region { backing: Hva::new(0), ..slot(1, place, SHOWN) }
}

/// A slot comes, moves by less than its length, and goes.
fn come_and_go<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>) {
    for place in PLACES {
        vm.set_memory_region(&window(place)).unwrap();
    }
    vm.set_memory_region(&Region { size: 0, ..window(PLACES[1]) }).unwrap();
}

/// Nothing is mapped where that slot was.
fn assert_gone<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>) {
    let section = vm.srcu().read_lock();
    for root in vm.stage2().roots(&section) {
        for page in PLACES[0]..PLACES[1] + SHOWN {
            assert_eq!(root.translate(Gfn::new(page), &section), None, "page {page}");
        }
    }
}

/// A copy of the VM's memory, which follows its log.
struct Migration(Mutex<Vec<u64>>);

impl Migration {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Vec::new())))
    }

    /// Switches the log on, copies everything, and then what is marked, a few times.
    fn run<const BREAK: bool>(&self, vm: &Vm<Kinds<BREAK>>, memory: &Memory) {
        let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..slot(0, 0, PAGES) };
        vm.set_memory_region(&logged).unwrap();
        let copy = (0..PAGES).map(|page| memory.host_read(page)).collect();
        *self.0.lock().unwrap() = copy;
        for _ in 0..2 {
            self.follow(vm, memory);
        }
    }

    /// Copies what was marked since.
    fn follow<const BREAK: bool>(&self, vm: &Vm<Kinds<BREAK>>, memory: &Memory) {
        let mut marks = [0];
        if thread_rng().gen_bool(0.5) {
            vm.harvest_dirty(SlotId::main(0), 0, &mut marks).unwrap();
        } else {
            let mut list = [DirtyWord::default(); 2];
            let count = vm.harvest_marked(SlotId::main(0), &mut 0, &mut list).unwrap();
            marks[0] = if count > 0 { list[0].marks } else { 0 };
        }
        for page in (0..PAGES).filter(|page| marks[0] >> page & 1 == 1) {
            let read = memory.host_read(page);
            self.0.lock().unwrap()[page as usize] = read;
        }
    }
}

/// The host moves some page, unless it is shared.
fn migrate_alone<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>, memory: &Memory) {
    let page = thread_rng().gen_range(0..PAGES);
    let _sharing = memory.sharing();
    if memory.is_shared(page) {
        return;
    }
    let invalidation = vm.invalidate_start(Hva::new(page * PAGE_SIZE), PAGE_SIZE, Reason::Migrate);
    memory.migrate(page);
    drop(invalidation);
}

/// Steps of a guest that also looks through the window.
fn looks(own: [u64; 2]) -> Vec<Step> {
    let mut steps = life(own, true);
    for _ in 0..4 {
        let at = thread_rng().gen_range(0..steps.len());
        steps.insert(at, Step::Look(PLACES[0] + thread_rng().gen_range(0..SHOWN + 2)));
    }
    steps
}

/// A VM with two guests, and all that happens to it but its end.
fn all_at_once<const BREAK: bool>() -> (Machine<BREAK>, Arc<Migration>) {
    let slot_zap = [SlotZap::Range, SlotZap::AllRoots][thread_rng().gen_range(0..2)];
    let mut machine = Machine::<BREAK>::new(2, thread_rng().gen_bool(0.5), slot_zap);
    let vm = machine.vm.clone();
    machine.memory.break_by(Some(Box::new(move |memory, page| unshare(&vm, memory, page))));
    for id in 0..2 {
        machine.guest_that_may_end(looks([id, 4 + id]));
    }
    let migration = Migration::new();
    let copy = Arc::clone(&migration);
    machine.spawn(move |vm, memory| copy.run(vm, memory));
    machine.spawn(|vm, memory| (0..2).for_each(|_| merge(vm, memory)));
    machine.spawn(|vm, memory| (0..2).for_each(|_| migrate_alone(vm, memory)));
    machine.spawn(|vm, _| come_and_go(vm));
    (machine, migration)
}

fn logged_merged_migrated_and_moved<const BREAK: bool>() {
    let (mut machine, migration) = all_at_once::<BREAK>();
    machine.join();
    assert_gone(&machine.vm);
    migration.follow(&machine.vm, &machine.memory);
    let here: Vec<_> = (0..PAGES).map(|page| machine.memory.host_read(page)).collect();
    assert_eq!(*migration.0.lock().unwrap(), here, "a write is in no log");
    machine.end();
}

#[test]
fn what_is_logged_merged_migrated_and_moved_at_once_reads_as_it_was_written_there_and_in_the_copy()
{
    check(logged_merged_migrated_and_moved::<false>);
    check(logged_merged_migrated_and_moved::<true>);
}

fn gone<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::new(1, true, SlotZap::Range);
    machine.vm.set_memory_region(&window(PLACES[1])).unwrap();
    machine.guest_that_may_end(vec![Step::Look(PLACES[1])]);
    machine.spawn(|vm, _| {
        vm.set_memory_region(&Region { size: 0, ..window(PLACES[1]) }).unwrap();
        assert_gone(vm);
    });
    machine.end();
}

#[test]
fn a_slot_that_is_gone_has_nothing_mapped_whatever_faults_are_under_way() {
    // One switch at the right moment is all it takes: short lives, and many.
    check_schedules(500, 6_000, gone::<false>);
}

fn destroyed<const BREAK: bool>() {
    let (mut machine, _) = all_at_once::<BREAK>();
    machine.spawn(|vm, _| vm.clone().destroy());
    machine.end();
}

#[test]
fn a_vm_is_destroyed_in_the_middle_of_anything() {
    check(destroyed::<false>);
    check(destroyed::<true>);
}

fn released<const BREAK: bool>() {
    let (mut machine, _) = all_at_once::<BREAK>();
    machine.spawn(|vm, memory| {
        vm.release();
        memory.withdraw_all();
    });
    machine.end();
}

#[test]
fn no_guest_uses_memory_that_was_released_in_the_middle_of_anything() {
    check(released::<false>);
    check(released::<true>);
}
