//! A VM, from its kernel to its end, and the account of what it had.

mod access;
mod board;
mod counts;
mod course;
mod devices;
mod exits;
mod host;
mod load;
mod msrs;
mod pending;
mod switch;
mod vcpu;
mod window;

use alloc::sync::Arc;

use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::{Error, Vm, iobus};

use super::boot::Boot;
use super::processor::console::say;
use super::processor::ending::Ending;
use super::world::memory::GuestMemory;
use super::world::{frames, heap};
use board::{Board, End};
use course::Seats;
use host::{Host, Kinds};

/// Runs the VM until it is turned off, and checks that nothing was lost.
pub(super) fn run(boot: &Boot) -> Ending {
    let host = match Host::try_new(boot.features) {
        Ok(host) => host,
        Err(why) => {
            say!("there is no memory for what VMs share: {why}");
            return Ending::Failed;
        }
    };
    let before = (frames::free(), heap::allocated());
    let end = loop {
        let end = live(boot, &host);
        host.reclaim();
        if end != Ok(End::Reset) {
            break end;
        }
        say!("the VM has reset its machine, and begins anew");
    };
    let after = (frames::free(), heap::allocated());
    match &end {
        Ok(end) => say!("the VM {end}"),
        Err(why) => say!("the VM cannot run: {why}"),
    }
    if after != before {
        say!(
            "LOST: {} frames are free, and were {}; {} bytes of heap are in use, and were {}",
            after.0,
            before.0,
            after.1,
            before.1
        );
        return Ending::Failed;
    }
    say!(
        "nothing was lost: {} frames are free and {} bytes of heap in use, as before",
        after.0,
        after.1
    );
    match end {
        Ok(End::Off) => Ending::Done,
        Ok(_) => Ending::Failed,
        Err(_) => Ending::Unable,
    }
}

/// Why a VM has not begun.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotBegun {
    #[error(transparent)]
    Kernel(#[from] load::NotLoaded),
    #[error(transparent)]
    Core(#[from] Error),
    #[error(transparent)]
    Bus(#[from] iobus::Error),
    #[error("there is no memory for its board")]
    Memory,
    #[error("it needs {wanted} frames with its tables, and {free} are free")]
    TooLittle { wanted: u64, free: u64 },
}

/// One life of the VM.
fn live(boot: &Boot, host: &Host) -> Result<End, NotBegun> {
    let plan = &boot.plan;
    // Each GiB has a table, each 2 MiB may have one, and there are those above.
    let (pages, free) = (plan.memory / PAGE_SIZE, frames::free());
    let wanted = pages + pages / 512 + 64;
    if wanted > free {
        return Err(NotBegun::TooLittle { wanted, free });
    }
    let memory = GuestMemory::try_new(plan.memory).map_err(|_| NotBegun::Memory)?;
    let memory = Arc::new(memory);
    let entry = load::load(&memory, boot)?;
    let board = Board::try_new(plan, &memory).map_err(|_| NotBegun::Memory)?;
    let board = Arc::new(board);
    let vm = Vm::<Kinds>::create(host.config(&memory))?;
    let region = Region {
        slot: SlotId::main(0),
        flags: Flags::empty(),
        gpa: Gpa::new(0),
        size: plan.memory,
        backing: Hva::new(0),
    };
    vm.set_memory_region(&region)?;
    devices::register(&vm, &board)?;
    let mut seats = Seats::try_new(&vm, &board, boot.features, plan)?;
    seats.begin(entry);
    let end = course::run(&mut seats, &board);
    say!("the VM's memory has {} frames; it came out for {}", memory.frames(), board.counts);
    drop(seats);
    vm.destroy();
    Ok(end)
}
