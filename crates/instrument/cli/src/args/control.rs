//! What `mayfly metal ctl` takes.

use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Args as ClapArgs, Subcommand};

/// Control Mayfly on bare metal from the host of its machine
#[derive(ClapArgs)]
#[command(arg_required_else_help = true)]
pub(crate) struct Metal {
    #[command(subcommand)]
    pub(crate) command: OfMetal,
}

#[derive(Subcommand)]
pub(crate) enum OfMetal {
    Ctl(Ctl),
}

/// Make, start, fork, freeze and end VMs of a running machine, and hear what becomes of them
///
/// The command asks the monitor of Mayfly at EL2 by the machine's control port, which QEMU leads to a socket (`make metal`
/// does). It ends when the monitor has done what was asked for, or says why it could not. What happens to VMs meanwhile is
/// said on standard error.
#[derive(ClapArgs)]
#[command(after_help = CTL_HELP)]
pub(crate) struct Ctl {
    /// The socket that leads to the machine's control port
    #[arg(long, value_name = "PATH", default_value = "target/metal/control", value_hint = ValueHint::FilePath)]
    pub(crate) socket: PathBuf,

    /// How many seconds to wait for the answer; events are waited for without an end, unless this is set [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) timeout: Option<u32>,

    /// Print the answers and events as the monitor says them, a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) request: Request,
}

const CTL_HELP: &str = "\
Examples:
  mayfly metal ctl stat
  mayfly metal ctl create web linux memory=256M -- console=ttyAMA0 quiet
  mayfly metal ctl start web
  mayfly metal ctl freeze web
  mayfly metal ctl fork one web
  mayfly metal ctl events --count 1

Exit codes:
  0  it is done
  1  the monitor could not do it, and the message says why
  2  the command line is wrong
  3  there is no answer: no such socket, none in time, or the machine has ended";

/// What the monitor is asked for.
#[derive(Subcommand)]
pub(crate) enum Request {
    /// Make a VM with the kernel and the ramdisks of another
    Create {
        /// The name of the new VM
        name: String,
        /// The VM whose kernel, ramdisks and parameters it gets
        like: String,
        /// Parameters that differ, as in vcpus=2
        parameters: Vec<String>,
        /// The arguments of its kernel, in place of those of the other VM
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Start a VM
    Start {
        /// The VM
        name: String,
    },
    /// End a VM at once, and wait until everything that it had is freed
    Stop {
        /// The VM
        name: String,
    },
    /// End a VM, and remove it
    Destroy {
        /// The VM
        name: String,
    },
    /// End a VM, and keep what it was, so that forks can go on as it was
    Freeze {
        /// The VM
        name: String,
    },
    /// Make a VM that goes on as a frozen VM was
    Fork {
        /// The name of the new VM; NAME-0, NAME-1 and so on with --count
        name: String,
        /// The frozen VM
        from: String,
        /// Parameters that differ, as in cap=50
        parameters: Vec<String>,
        /// How many to make
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2048))]
        count: Option<u32>,
    },
    /// Have a fork go on as its frozen VM was, again
    Reset {
        /// The fork
        name: String,
    },
    /// Ask the guest of a VM to give back some of its memory
    Balloon {
        /// The VM
        name: String,
        /// How much: a number of bytes, or of K, M, G; 0 asks for nothing
        size: String,
    },
    /// Print the state, the memory and the CPU time of a VM, or of all
    Stat {
        /// The VM
        name: Option<String>,
    },
    /// Print what happens to VMs by itself: which have ended, were ended for want of memory, or have crashed
    Events {
        /// End after so many
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
    },
}
