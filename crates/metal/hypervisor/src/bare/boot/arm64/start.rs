//! The start of the program in Rust: it prepares what the device tree says that the machine has.

use core::ptr::with_exposed_provenance;
use core::slice;

use mayfly_arm64::cpu;
use mayfly_arm64::gic::Gic;
use mayfly_arm64::tlb::EmptyRoot;
use mayfly_hypervisor::board::{Board, Region};
use mayfly_hypervisor::tree::{self, Method, Tree};

use super::{cpus, map};
use crate::bare::boot::arriving::wait_for_others;
use crate::bare::boot::{memory, run};
use crate::bare::devices::clock;
use crate::bare::own;
use crate::bare::processor::serial::line_without_lock;
use crate::bare::processor::shared::{self, Shared};
use crate::bare::processor::{cpus as processors, frames, heap, power_off, this_cpu};
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::vm::arch::IPA_BITS;
use crate::bare::world::entropy;

/// What the first processor does first in Rust.
pub(crate) extern "C" fn main(tree: u64) -> ! {
    heap::prepare();
    // There is no console to print the error on.
    let Some(tree) = read_tree(tree) else { stop() };
    if let Some(uart) = tree::console(tree) {
        // SAFETY: the device tree says so, and it is mapped as a device where it is not memory.
        unsafe {
            map::reach(uart.start);
            this_cpu::use_serial_port(uart.start as usize);
        }
    }
    let level = cpu::exception_level();
    if level != 2 {
        refuse_level(level, tree::method(tree));
    }
    // SAFETY: before anything asks for it.
    unsafe { cpu::set_number(0) };
    say!("mayfly {}: starts", env!("CARGO_PKG_VERSION"));
    let machine = match Tree::read(tree) {
        Ok(machine) if !cpu::keeps_host_layout() => machine,
        Ok(_) => {
            say!(
                "mayfly: HCR_EL2.E2H of this CPU cannot be cleared: it has no EL2 but that of FEAT_VHE, which is not used here"
            );
            power_off()
        }
        Err(error) => {
            // Not printed where it is the console that is missing.
            say!("mayfly: {error}");
            if tree::method(tree) != Some(Method::Smc) {
                stop()
            }
            power_off()
        }
    };
    match prepare(&machine, tree) {
        Ok(()) => {
            say!(
                "mayfly: EL{}, {} CPUs, {} MiB free, FWB {}",
                cpu::exception_level(),
                processors::count(),
                frames::count_free() >> 8,
                if cpu::stage2_features().has_fwb() { "yes" } else { "no" },
            );
        }
        Err(why) => {
            say!("mayfly: {why}");
            power_off()
        }
    }
    run(machine.board)
}

fn read_tree(at: u64) -> Option<&'static [u8]> {
    let start = with_exposed_provenance::<u8>(at as usize);
    // SAFETY: the boot protocol says that the tree is there; its GiB is mapped.
    let header = unsafe { start.cast::<[u8; 8]>().read() };
    let size = tree::size(&header)?;
    // SAFETY: as above; the frames are kept for it.
    Some(unsafe { slice::from_raw_parts(start, size) })
}

fn prepare(machine: &Tree, tree: &[u8]) -> Result<(), &'static str> {
    let mut tables =
        map::activate(machine).map_err(|_| "there is too little memory to map the machine")?;
    let table = tables.root();
    let tree = tree.as_ptr().addr() as u64..tree.as_ptr().addr() as u64 + tree.len() as u64;
    add_memory(&machine.board, &[tree, map::image()])?;
    threads::prepare_stacks(table)?;
    // Sixteen tables, as many as a root can have, aligned as such.
    let empty = threads::frames::allocate(4).ok_or("there is too little memory")?;
    // SAFETY: the device tree says so, they are mapped as devices, and nothing else uses them.
    let gic = unsafe {
        Gic::new(machine.distributor.start as usize, machine.redistributors.clone().leak())
    };
    gic.prepare();
    if machine.clock.start != 0 {
        let clock = with_exposed_provenance::<u32>(machine.clock.start as usize);
        // SAFETY: the device tree says that a PL031 is there, mapped as a device: its data register, which reading does
        // not change.
        clock::set(u64::from(unsafe { clock.read_volatile() }));
    }
    shared::set_gic(gic);
    this_cpu::arrive(0)?.note_first();
    entropy::prepare(&machine.board.seed);
    cpus::start_others(machine, table);
    let format = cpu::stage2_features().choose(IPA_BITS);
    let format = format.map_err(|_| "the processors' stage 2 cannot map guests of 1 TiB")?;
    shared::set(Shared {
        vtcr: format.vtcr(),
        empty: EmptyRoot::new(empty),
        uart_interrupt: machine.uart_interrupt,
        interface: shared::shape(),
    });
    cpus::prepare();
    wait_for_others();
    if let Some(number) = machine.uart_interrupt {
        gic.enable_shared(number, this_cpu::affinity(0));
    }
    own::find(&machine.virtio, &machine.pci, &mut |addresses| tables.add_device(addresses));
    Ok(())
}

/// Says that this is not EL2, in words, and stops the machine. No register of EL2 can be touched.
fn refuse_level(level: u64, method: Option<Method>) -> ! {
    line_without_lock(format_args!(
        "mayfly: this is EL{level}, and not EL2: start the machine with virtualization (QEMU: -M virt,virtualization=on)"
    ));
    // From EL3 there is no firmware to call.
    if level == 1 {
        let _ = match method {
            Some(Method::Hvc) => smccc::psci::system_off::<smccc::Hvc>(),
            Some(Method::Smc) => smccc::psci::system_off::<smccc::Smc>(),
            None => stop(),
        };
    }
    stop()
}

fn stop() -> ! {
    loop {
        mayfly_arm64::spin::wait_for_interrupt();
    }
}

/// Gives the machine's free memory to the heap and the pool, and says how much of it is not used.
fn add_memory(board: &Board, others: &[Region]) -> Result<(), &'static str> {
    let limit = map::LIMIT;
    memory::add(board, others, limit)?;
    let beyond = |region: &Region| region.end.saturating_sub(region.start.max(limit));
    let beyond: u64 = board.memory.iter().map(beyond).sum();
    if beyond > 0 {
        let (unused, limit) = (beyond >> 20, limit >> 30);
        say!("mayfly: {unused} MiB of memory are not used: they are beyond {limit} GiB");
    }
    Ok(())
}
