//! Mayfly's instructions beside its peers', counted by callgrind. Each benchmark does its thing a thousand times, or
//! maps a GiB; what it returns is freed uncounted.
#![expect(missing_docs, reason = "the harness generates public items")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use mayfly_bench::addresses::Addresses;
use mayfly_bench::liburcu::Registered;
use mayfly_bench::single_thread::SingleThread;
use mayfly_bench::tables::{self, aarch64, mayfly, x86};
use mayfly_bench::{bus, deferred, memory, sections};
use mayfly_iobus::IoBus;
use mayfly_memslot::{Hva, MemSlots};
use mayfly_platform::Platform;
use mayfly_srcu::{Reader, Srcu};
use mayfly_stage2::{Arm, Ept, Format};
use vm_device::device_manager::IoManager;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

const TIMES: u32 = 1000;

fn domain() -> (Arc<dyn Platform>, Srcu) {
    let platform: Arc<dyn Platform> = Arc::new(SingleThread::new());
    let domain = sections::domain(Arc::clone(&platform));
    (platform, domain)
}

fn reader() -> Reader {
    sections::reader(&domain().1)
}

/// What a first section initialises is not counted.
fn pinned_once() {
    sections::crossbeam_pin(1);
}

#[library_benchmark]
#[bench::x1000(setup = reader)]
fn mayfly_lock_unlock(reader: Reader) -> Reader {
    sections::registered(&reader, TIMES);
    reader
}

#[library_benchmark]
#[bench::x1000(setup = pinned_once)]
fn crossbeam_pin_unpin((): ()) {
    sections::crossbeam_pin(TIMES);
}

#[library_benchmark]
#[bench::x1000(setup = Registered::new)]
fn liburcu_lock_unlock(here: Registered) -> Registered {
    here.inlined_sections(TIMES);
    here
}

library_benchmark_group!(
    name = lock_and_unlock,
    compare_by_id = true,
    benchmarks = [mayfly_lock_unlock, crossbeam_pin_unpin, liburcu_lock_unlock]
);

/// Of both, as many are freed as are deferred.
fn filled() -> Srcu {
    let (_, domain) = domain();
    deferred::fill(|count| deferred::mayfly(&domain, count));
    deferred::fill(deferred::crossbeam);
    domain
}

#[library_benchmark]
#[bench::x1000(setup = filled)]
fn mayfly_call(domain: Srcu) -> Srcu {
    deferred::mayfly(&domain, TIMES);
    domain
}

#[library_benchmark]
#[bench::x1000(setup = filled)]
fn crossbeam_defer(domain: Srcu) -> Srcu {
    deferred::crossbeam(TIMES);
    domain
}

library_benchmark_group!(
    name = allocate_defer_free,
    compare_by_id = true,
    benchmarks = [mayfly_call, crossbeam_defer]
);

const DEVICES: u64 = bus::FEW;

struct MayflyBus {
    bus: IoBus<bus::Device>,
    reader: Reader,
    addresses: Addresses,
}

fn mayfly_bus(addresses: fn(u64) -> Addresses) -> MayflyBus {
    let (platform, domain) = domain();
    let reader = sections::reader(&domain);
    MayflyBus {
        bus: bus::mayfly(&domain, platform, DEVICES),
        reader,
        addresses: addresses(DEVICES),
    }
}

fn vm_device(addresses: fn(u64) -> Addresses) -> (IoManager, Addresses) {
    (bus::vm_device(DEVICES), addresses(DEVICES))
}

#[library_benchmark]
#[bench::uniform_x1000(args = (bus::uniform), setup = mayfly_bus)]
#[bench::same_x1000(args = (bus::same), setup = mayfly_bus)]
fn mayfly_find_and_read(on: MayflyBus) -> MayflyBus {
    let mut last = mayfly_iobus::LastHit::default();
    bus::mayfly_reads(&on.bus, &on.reader, &mut last, &on.addresses, TIMES);
    on
}

#[library_benchmark]
#[bench::uniform_x1000(args = (bus::uniform), setup = vm_device)]
#[bench::same_x1000(args = (bus::same), setup = vm_device)]
fn vm_device_read((manager, addresses): (IoManager, Addresses)) -> (IoManager, Addresses) {
    bus::vm_device_reads(&manager, &addresses, TIMES);
    (manager, addresses)
}

library_benchmark_group!(
    name = find_one_of_32_devices,
    compare_by_id = true,
    benchmarks = [mayfly_find_and_read, vm_device_read]
);

struct MayflySlots {
    slots: MemSlots<Hva>,
    reader: Reader,
    addresses: Addresses,
}

fn mayfly_slots(slots: u16) -> MayflySlots {
    let (platform, domain) = domain();
    let reader = sections::reader(&domain);
    let addresses = memory::uniform(slots);
    MayflySlots { slots: memory::mayfly(&domain, platform, slots), reader, addresses }
}

fn vm_memory(regions: u16) -> (GuestMemoryAtomic<GuestMemoryMmap>, Addresses) {
    let memory = memory::vm_memory(regions);
    // What a first load initialises is not counted.
    memory::vm_memory_lookups(&memory, &memory::same(regions), 1);
    (memory, memory::uniform(regions))
}

#[library_benchmark]
#[bench::of_8_x1000(args = (8), setup = mayfly_slots)]
#[bench::of_512_x1000(args = (512), setup = mayfly_slots)]
fn mayfly_find(on: MayflySlots) -> MayflySlots {
    memory::mayfly_lookups(&on.slots, &on.reader, &on.addresses, TIMES);
    on
}

#[library_benchmark]
#[bench::of_8_x1000(args = (8), setup = vm_memory)]
#[bench::of_512_x1000(args = (512), setup = vm_memory)]
fn vm_memory_find_region(
    (memory, addresses): (GuestMemoryAtomic<GuestMemoryMmap>, Addresses),
) -> (GuestMemoryAtomic<GuestMemoryMmap>, Addresses) {
    memory::vm_memory_lookups(&memory, &addresses, TIMES);
    (memory, addresses)
}

library_benchmark_group!(
    name = find_one_of_many_slots,
    compare_by_id = true,
    benchmarks = [mayfly_find, vm_memory_find_region]
);

/// Not freed: that takes its time, and the vDSO, where `Host` finds it, is not there under valgrind.
type MayflyTables<F> = ManuallyDrop<mayfly::Tables<F>>;

/// Empty ones.
fn mayfly_tables() -> MayflyTables<Arm<48>> {
    ManuallyDrop::new(mayfly::Tables::new(&tables::used_hardware(), &domain().1))
}

/// Empty ones.
fn aarch64_tables() -> aarch64::Tables {
    aarch64::Tables::new(&tables::used_hardware())
}

#[library_benchmark]
#[bench::gib_at_once(setup = mayfly_tables)]
fn mayfly_map_run(tables: MayflyTables<Arm<48>>) {
    tables.map_run();
}

#[library_benchmark]
#[bench::gib_at_once(setup = aarch64_tables)]
fn aarch64_paging_map_range(mut tables: aarch64::Tables) -> aarch64::Tables {
    tables.map_run();
    tables
}

library_benchmark_group!(
    name = map_a_gib,
    compare_by_id = true,
    benchmarks = [mayfly_map_run, aarch64_paging_map_range]
);

#[library_benchmark]
#[bench::gib_by_page(setup = mayfly_tables)]
fn mayfly_map(tables: MayflyTables<Arm<48>>) {
    tables.map_pages();
}

#[library_benchmark]
#[bench::gib_by_page(setup = aarch64_tables)]
fn aarch64_paging_map_page(mut tables: aarch64::Tables) -> aarch64::Tables {
    tables.map_pages();
    tables
}

library_benchmark_group!(
    name = map_a_gib_by_page,
    compare_by_id = true,
    benchmarks = [mayfly_map, aarch64_paging_map_page]
);

fn mayfly_mapped<F: Format>() -> (MayflyTables<F>, Addresses) {
    let tables = mayfly::Tables::mapped(&tables::hardware(), &domain().1);
    (ManuallyDrop::new(tables), tables::uniform())
}

fn aarch64_mapped() -> (aarch64::Tables, Addresses) {
    (aarch64::Tables::mapped(&tables::hardware()), tables::uniform())
}

fn x86_mapped() -> (x86::Tables, Addresses) {
    (x86::Tables::mapped(&tables::hardware()), tables::uniform())
}

#[library_benchmark]
#[bench::x1000(setup = mayfly_mapped::<Arm<48>>)]
fn mayfly_translate_arm((tables, pages): (MayflyTables<Arm<48>>, Addresses)) -> Addresses {
    tables.translate(&pages, TIMES);
    pages
}

#[library_benchmark]
#[bench::x1000(setup = aarch64_mapped)]
fn aarch64_paging_walk(
    (tables, pages): (aarch64::Tables, Addresses),
) -> (aarch64::Tables, Addresses) {
    tables.translate(&pages, TIMES);
    (tables, pages)
}

library_benchmark_group!(
    name = translate_arm,
    compare_by_id = true,
    benchmarks = [mayfly_translate_arm, aarch64_paging_walk]
);

#[library_benchmark]
#[bench::x1000(setup = mayfly_mapped::<Ept>)]
fn mayfly_translate_ept((tables, pages): (MayflyTables<Ept>, Addresses)) -> Addresses {
    tables.translate(&pages, TIMES);
    pages
}

#[library_benchmark]
#[bench::x1000(setup = x86_mapped)]
fn x86_64_translate((tables, pages): (x86::Tables, Addresses)) -> (x86::Tables, Addresses) {
    tables.translate(&pages, TIMES);
    (tables, pages)
}

library_benchmark_group!(
    name = translate_ept,
    compare_by_id = true,
    benchmarks = [mayfly_translate_ept, x86_64_translate]
);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::default().format([EventKind::Ir])),
    library_benchmark_groups = [
        lock_and_unlock,
        allocate_defer_free,
        find_one_of_32_devices,
        find_one_of_many_slots,
        map_a_gib,
        map_a_gib_by_page,
        translate_arm,
        translate_ept
    ]
);
