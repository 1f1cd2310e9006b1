//! First touches of memory, its end, and the start and the stop of its dirty log, by the size of its pages.

use std::fs;
use std::time::Instant;

use mayfly_kvm::vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use mayfly_kvm::{
    Backing, Error, GuestMemory, HugePages, Irqchip, Kvm, MemoryFlags, Payload, Vm, VmBuilder,
    Waits,
};
use mayfly_record::{ResultRow, Samples};

use super::life::{none, timed, took};
use super::shared::{Shared, Yield, measured};

pub(super) const NAME: &str = "memory";

pub(super) const ROWS: [&str; 3] = ["pages-4k", "pages-thp", "pages-hugetlb"];

pub(super) const METRICS: [&str; 6] =
    ["host_fault", "munmap", "guest_fault", "guest_touch", "log_start", "log_stop"];

/// Bytes that are touched, a word in each 4096.
const SIZE: usize = 32 << 20;

/// Where the guest has them: at a multiple of a huge page.
const AT: u64 = 256 << 20;

const ROUNDS: usize = 4;

const PAGE: usize = 4096;

pub(super) fn probe(shared: &Shared, until: Instant) -> Yield {
    let [small, thp, hugetlb] = ROWS;
    let kinds = [
        (small, Backing::Anonymous, Some(HugePages::Unwanted)),
        (thp, Backing::Anonymous, Some(HugePages::Wanted)),
        (hugetlb, Backing::HugeTlb, None),
    ];
    let row = |(name, backing, huge): (&'static str, Backing, Option<HugePages>)| {
        let map = || backing.map(&[(AT, SIZE)], huge);
        measured(name, |row| touched(&shared.kvm, &map, huge, until, row))
    };
    let here = kinds.into_iter().filter(|(_, backing, _)| *backing != Backing::HugeTlb || enough());
    Yield { rows: here.map(row).collect(), ..Yield::default() }
}

/// Whether so many pages of 2 MiB are set aside and free.
fn enough() -> bool {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free = free.ok().and_then(|free| free.trim().parse::<usize>().ok());
    free.is_some_and(|free| free >= SIZE >> 21)
}

fn touched(
    kvm: &Kvm,
    map: &dyn Fn() -> Result<GuestMemoryMmap, Error>,
    huge: Option<HugePages>,
    until: Instant,
    row: ResultRow,
) -> Result<ResultRow, Error> {
    let code = GuestMemory::map_populated(2 << 20)?;
    Payload::install(&code)?;
    let payload = Payload { touch: AT..AT + SIZE as u64, doorbell: None, port: 0x10 };
    let (waits, mut of): (_, [Samples; METRICS.len()]) = (Waits::default(), none());
    for _ in 0..ROUNDS {
        if Instant::now() >= until {
            break;
        }
        let memory = map()?;
        of[0].record_ns(timed(|| touch(&memory))?.1);
        of[1].record_ns(took(|| drop(memory)));

        let memory = map()?;
        let builder = VmBuilder::new(kvm, &waits).region(0, &code).memory(&memory)?;
        let mut built = builder.irqchip(Irqchip::Full).vcpus(1).start()?;
        drop(memory);
        if let Some(vcpu) = built.vcpus.first_mut() {
            vcpu.load(&payload)?;
            of[2].record_ns(timed(|| vcpu.run_to_exit())?.1);
            of[3].record_ns(timed(|| vcpu.run_to_exit())?.1);
        }
        built.vm.destroy(built.vcpus);

        // Pages that are set aside are more than one mapping's at no time.
        if let Some(huge) = huge {
            let [start, stop] = logged(kvm, &code, &payload, huge)?;
            of[4].record_ns(start);
            of[5].record_ns(stop);
        }
    }
    let with = |row: ResultRow, (name, of): (&str, &Samples)| row.metric(name, of);
    Ok(METRICS.into_iter().zip(&of).fold(row.param("bytes", SIZE), with))
}

/// The start and the stop of the dirty log of memory, each page of which the guest has written to twice.
fn logged(
    kvm: &Kvm,
    code: &GuestMemory,
    payload: &Payload,
    huge: HugePages,
) -> Result<[u64; 2], Error> {
    let memory = GuestMemory::map(SIZE)?;
    memory.advise(huge)?;
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, 0, code, MemoryFlags::default())?;
    vm.set_memory_region(1, AT, &memory, MemoryFlags::default())?;
    let mut vcpu = vm.create_vcpu(0)?;
    vm.finish_irqchip()?;
    vcpu.load(payload)?;
    for _ in 0..2 {
        vcpu.run_to_exit()?;
    }
    let log = |log_dirty| {
        let flags = MemoryFlags { log_dirty, ..MemoryFlags::default() };
        Ok(timed(|| vm.set_memory_region(1, AT, &memory, flags))?.1)
    };
    let times = [log(true)?, log(false)?];
    vm.destroy(vec![vcpu]);
    Ok(times)
}

/// Writes a word to each page.
fn touch(memory: &GuestMemoryMmap) -> Result<(), Error> {
    (0..SIZE).step_by(PAGE).try_for_each(|offset| {
        let written = memory.write_obj(1u64, GuestAddress(AT + offset as u64));
        written.map_err(|_| Error::Memory { offset, size: SIZE })
    })
}
