//! Answers requests with the number of the fork that this is, in a Linux that runs on Mayfly.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::ptr;

use rustix::fs::{Mode, OFlags, open};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Where a guest reads what its fork is told (docs/fork.md): the first word is its number.
const PAGE: u64 = 0x902_0000;

/// The registers at [`PAGE`], mapped.
struct Told(*const u64);

impl Told {
    fn map() -> io::Result<Self> {
        let memory = open("/dev/mem", OFlags::RDONLY | OFlags::SYNC, Mode::empty())?;
        // SAFETY: The kernel chooses an address at which nothing else is.
        let page = unsafe {
            mmap(ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &memory, PAGE)
        }?;
        Ok(Self(page.cast_const().cast()))
    }

    fn number(&self) -> u64 {
        // SAFETY: The page is mapped for as long as the process lives, and can be read. What it has changes when the VM is
        // forked, so the read is volatile.
        unsafe { self.0.read_volatile() }
    }
}

fn serve() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| io::Error::other("usage: mayfly-answers PORT"))?;
    let told = Told::map()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // The page has been read before it is said, so that a fork has it in its tables.
    println!("guest: fork {} answers at port {port}: may be frozen", told.number());
    mayfly_requests::answer::serve(&listener, || told.number())
}

fn main() -> ExitCode {
    let Err(error) = serve() else { return ExitCode::SUCCESS };
    println!("guest: FAILED: {error}");
    ExitCode::FAILURE
}
