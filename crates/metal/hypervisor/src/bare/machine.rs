//! The start of the program: what the machine has, and what runs on it.

use alloc::vec::Vec;
use core::panic::PanicInfo;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::slice;

use mayfly_arm64::gic::Gic;
use mayfly_arm64::tlb::EmptyRoot;
use mayfly_arm64::{cpu, timer};
use mayfly_hypervisor::frames::{FrameInfo, FramePool};
use mayfly_hypervisor::tree::{self, Board, Region};
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE};
use smccc::Smc;

use super::console::{last_words, say};
use super::{clock, console, cpus, entropy, heap, map, monitor, threads, vm, world};

/// What the frames of the heap are to those of the machine: 1 in 64, and 4 MiB at least.
const HEAP_SHARE: u64 = 64;
const HEAP_LEAST: u64 = 4 << 20;

/// Where the first processor comes to Rust.
pub(super) extern "C" fn main(tree: u64) -> ! {
    heap::prepare();
    // SAFETY: before anything asks for it.
    unsafe { cpu::set_number(0) };
    // There is no console to say so.
    let Some(tree) = read_tree(tree) else { power_off() };
    let board = match Board::read(tree) {
        Ok(board) => board,
        Err(error) => {
            // As above, where it is the console that is missing.
            say!("mayfly: {error}");
            power_off()
        }
    };
    // SAFETY: the device tree says so, and the first 4 GiB are mapped as devices where they are not memory.
    unsafe { console::use_at(board.uart.start as usize) };
    match prepare(&board, tree) {
        Ok(table) => {
            cpus::start_others(&board, table);
            say!(
                "mayfly: EL{}, {} CPUs, {} MiB free, FWB {}",
                cpu::exception_level(),
                cpus::count(),
                world::free_frames() >> 8,
                if cpu::stage2_features().has_fwb() { "yes" } else { "no" },
            );
        }
        Err(why) => {
            say!("mayfly: {why}");
            power_off()
        }
    }
    console::listen();
    world::look();
    if let Err(error) = threads::spawn(move || monitor::main(&board)) {
        say!("mayfly: {error}");
        power_off()
    }
    threads::idle()
}

fn read_tree(at: u64) -> Option<&'static [u8]> {
    let start = with_exposed_provenance::<u8>(at as usize);
    // SAFETY: the boot protocol says that the tree is there; its GiB is mapped.
    let header = unsafe { start.cast::<[u8; 8]>().read() };
    let size = tree::size(&header)?;
    // SAFETY: as above; the frames are kept for it.
    Some(unsafe { slice::from_raw_parts(start, size) })
}

fn prepare(board: &Board, tree: &[u8]) -> Result<u64, &'static str> {
    if cpu::exception_level() != 2 {
        return Err(
            "this is not EL2: start it with virtualization (QEMU: -M virt,virtualization=on)",
        );
    }
    let table = map::activate(board).map_err(|_| "there is no memory to map the machine")?;
    let tree = tree.as_ptr().addr() as u64..tree.as_ptr().addr() as u64 + tree.len() as u64;
    add_memory(board, &[tree, map::image()])?;
    let format = cpu::stage2_features().choose(vm::IPA_BITS);
    let format = format.map_err(|_| "this processor has no stage 2 for guests of 1 TiB")?;
    // Sixteen tables, as many as a root can have, aligned as such.
    let empty = world::allocate_frames(4).ok_or("there is no memory")?;
    // SAFETY: the device tree says so, they are mapped as devices, and nobody else uses them.
    let gic = unsafe {
        let bytes = board.redistributors.end - board.redistributors.start;
        Gic::new(
            board.distributor.start as usize,
            board.redistributors.start as usize,
            bytes as usize,
        )
    };
    gic.prepare();
    // SAFETY: the device tree says so, or that there is none, and it is mapped as a device.
    unsafe { clock::read(board.clock.start) };
    entropy::prepare(&board.seed);
    world::set_facts(gic, format.vtcr(), EmptyRoot::new(empty), board.uart_interrupt);
    cpus::prepare(0)?;
    if let Some(number) = board.uart_interrupt {
        gic.enable_shared(number, cpus::affinity(0));
    }
    Ok(table)
}

/// Gives the frames that are nobody's to the pool, and a share of them to the heap.
fn add_memory(board: &Board, others: &[Region]) -> Result<(), &'static str> {
    let mut free: Vec<Region> = board.memory.clone();
    for taken in board.reserved.iter().chain(others) {
        let taken = taken.start & !(PAGE_SIZE - 1)..taken.end.next_multiple_of(PAGE_SIZE);
        free = free.iter().flat_map(|region| without(region, &taken)).collect();
    }
    free.retain(|region| !region.is_empty());
    let first = free.iter().map(|region| region.start).min().unwrap_or(0) >> PAGE_SHIFT;
    let last = free.iter().map(|region| region.end).max().unwrap_or(0) >> PAGE_SHIFT;
    // What is known of each frame is in the first region that is large enough.
    let count = (last - first) as usize;
    let bytes = (count * size_of::<FrameInfo>()) as u64;
    let all: u64 = free.iter().map(|region| region.end - region.start).sum();
    let wanted = bytes.next_multiple_of(PAGE_SIZE)
        + (all / HEAP_SHARE).max(HEAP_LEAST).next_multiple_of(PAGE_SIZE);
    let room = free.iter_mut().find(|region| region.end - region.start >= wanted);
    let room = room.ok_or("there is too little memory")?;
    let infos = with_exposed_provenance_mut::<FrameInfo>(room.start as usize);
    let heap_start = room.start + bytes.next_multiple_of(PAGE_SIZE);
    room.start += wanted;
    // SAFETY: memory that nobody has, as the device tree says, and that leaves the pool here.
    let pool = unsafe {
        (0..count).for_each(|number| infos.add(number).write(FrameInfo::ABSENT));
        heap::add(
            with_exposed_provenance_mut(heap_start as usize),
            (room.start - heap_start) as usize,
        );
        slice::from_raw_parts_mut(infos, count)
    };
    let mut pool = FramePool::new(first, pool);
    for region in free {
        // Frame 0 is nobody's: lists end with it.
        pool.add((region.start >> PAGE_SHIFT).max(1)..region.end >> PAGE_SHIFT);
    }
    world::set_frames(pool);
    Ok(())
}

fn without(region: &Region, taken: &Region) -> [Region; 2] {
    let below = region.start..region.end.min(taken.start).max(region.start);
    let above = region.start.max(taken.end).min(region.end)..region.end;
    [below, above]
}

/// Ends the machine.
pub(super) fn power_off() -> ! {
    let _ = smccc::psci::system_off::<Smc>();
    loop {
        mayfly_arm64::spin::wait_for_interrupt();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    last_words(format_args!("mayfly: CPU {} at {}: {info}", cpu::number(), timer::ticks()));
    power_off()
}

/// An exception of EL2's own.
#[unsafe(no_mangle)]
extern "C" fn arm64_lost(vector: u64) -> ! {
    let syndrome = mayfly_arm64::read_register!("esr_el2");
    let (at, address) =
        (mayfly_arm64::read_register!("elr_el2"), mayfly_arm64::read_register!("far_el2"));
    let image = map::image().start;
    panic!(
        "exception by vector {vector}: ESR {syndrome:#x} at image + {:#x}, FAR {address:#x}",
        at.wrapping_sub(image)
    )
}
