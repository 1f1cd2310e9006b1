//! The start of the program in Rust: it prepares what the loader and the processor say that the machine has.

use alloc::string::{String, ToString};

use mayfly_devices::cmos;
use mayfly_hypervisor::board::Board;
use mayfly_hypervisor::x86::list;
use mayfly_x86::bare::{apic, svm, timer};
use mayfly_x86::boot::hvm::StartInfo;
use mayfly_x86::boot::processors;
use x86_64::instructions::port::Port;

use super::loaded::{self, LOW, Loaded};
use super::{cpus, map};
use crate::bare::boot::arriving::wait_for_others;
use crate::bare::boot::{memory, run};
use crate::bare::devices::clock;
use crate::bare::own;
use crate::bare::processor::shared::{self, Shared};
use crate::bare::processor::this_cpu::{self, most_cpus};
use crate::bare::processor::{cpus as all, frames, heap, power_off};
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::world::entropy;

core::arch::global_asm!(include_str!("start.S"), options(att_syntax));

/// The first port of the machine's own clock.
const CLOCK: u16 = 0x70;

/// What the first processor does first in Rust, in long mode: with what the loader has told at this address.
#[unsafe(no_mangle)]
extern "C" fn x86_begin(told: u64) -> ! {
    heap::prepare();
    // SAFETY: before anything asks for it.
    unsafe { this_cpu::begin(0) };
    say!("mayfly {}: starts", env!("CARGO_PKG_VERSION"));
    match prepare(told) {
        Ok(board) => {
            say!(
                "mayfly: {} CPUs, {} MiB free, a time-stamp counter of {} kHz",
                all::count(),
                frames::count_free() >> 8,
                timer::frequency() / 1000
            );
            run(board)
        }
        Err(why) => {
            say!("mayfly: {why}");
            power_off()
        }
    }
}

fn prepare(told: u64) -> Result<Board, String> {
    let text = |why: &dyn ToString| why.to_string();
    let features = svm::features().map_err(|why| text(&why))?;
    say!("mayfly: {features}");
    svm::enable(features).map_err(|why| text(&why))?;
    let info = StartInfo::read(&Loaded, told).map_err(|why| text(&why))?;
    let mut board = read(info).map_err(|why| text(&why))?;
    let archive = loaded::archive(info).map_err(|why| text(&why))?;
    let ids = processors::apic_ids(&Loaded, info.rsdp);
    // SAFETY: the first instructions have mapped it, and a PC has memory there, which is not given to anybody.
    unsafe { cpus::place() };

    let mut tables =
        map::activate(&board).map_err(|_| "there is too little memory to map the machine")?;
    memory::add(&board, &[map::image(), LOW, archive.clone()], map::LIMIT)?;
    threads::prepare_stacks(tables.root())?;
    apic::prepare();
    this_cpu::arrive().map_err(|why| text(&why))?;
    timer::prepare().map_err(|why| text(&why))?;
    clock::set(cmos::second(clock_of_machine).unwrap_or(0));
    entropy::prepare(&board.seed);
    cpus::start_others(&ids, most_cpus(features), tables.root(), features);
    shared::set(Shared { features });
    cpus::prepare();
    wait_for_others();
    // Where they are is not looked for.
    own::find(&[], &[], &mut |addresses| tables.add_device(addresses));

    // SAFETY: it was kept from whoever asks for frames, and is mapped.
    let bytes = unsafe { loaded::bytes(&archive) };
    let (modules, wrong) = list::modules(bytes, archive.start);
    for why in wrong {
        say!("mayfly: {why}");
    }
    board.modules = modules;
    Ok(board)
}

/// The machine, as the loader tells of it.
fn read(info: StartInfo) -> Result<Board, loaded::Wrong> {
    let mut board = Board { arguments: loaded::line(info)?, ..Board::default() };
    for region in info.regions(&Loaded) {
        let region = region?;
        let place = region.start..region.end;
        if !region.usable {
            board.reserved.push(place);
        } else if place.end > LOW.end {
            board.memory.push(place.start.max(LOW.end)..place.end);
        }
    }
    Ok(board)
}

/// A register of the machine's own clock.
fn clock_of_machine(index: u8) -> u8 {
    // SAFETY: the clock's ports, which change no memory.
    unsafe {
        Port::<u8>::new(CLOCK).write(index);
        Port::<u8>::new(CLOCK + 1).read()
    }
}
