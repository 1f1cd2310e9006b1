//! `mayfly doctor --pid`: what KVM's calls take for a VMM that runs, by what it has.

use std::fmt::Display;
use std::io;
use std::path::Path;

use mayfly_kvm::Kvm;
use mayfly_lab::Bar;
use mayfly_laws::{Document, KvmKernel, Options, Vmm};
use mayfly_record::units::{grouped, things};
use mayfly_watch::{Open, Process};

use crate::failure::Failure;
use crate::kept;
use crate::measured;
use crate::output::Stream;
use crate::run::progress;
use crate::trace::is_there;

/// Samples of each point, where laws are measured for one process: a user waits for them.
const ROUNDS: u32 = 7;

/// Tells of a process. Its laws are those of a file, or measured now.
pub(crate) fn vmm(pid: i32, laws: Option<&Path>, full: bool) -> Result<(), Failure> {
    // What is wrong with a file is said first: it has nothing to do with the process.
    let laws = match laws {
        Some(path) => Some((path, kept::laws(path)?)),
        None => None,
    };
    is_there(pid)?;
    let process = Process::look(pid);
    let unread = unread(&process);
    if process.mappings.is_err() && process.open.is_err() {
        return Err(Failure::nothing_ran(unread.join("; ")));
    }
    let vmm = has(&process);
    let width = Stream::Out.width();
    Stream::Out.write(&filled(&about(&process, &unread), width))?;
    let (whence, document) = match laws {
        Some((path, document)) => (of_file(path, &document), document),
        None => ("The times below are of VMs made here just now.".to_owned(), measure(&vmm)?),
    };
    let told = vmm.told(&document, width, full);
    Stream::Out.write(&format!("{}\n{told}", filled(&whence, width)))
}

/// What laws are asked of.
fn has(process: &Process) -> Vmm {
    let open = process.open.as_ref().ok();
    Vmm {
        mappings: process.mappings.as_ref().ok().copied(),
        vms: open.map(|open| open.vms),
        vcpus: open.filter(|open| open.vms == 1).map(|open| open.vcpus),
    }
}

/// What may not be read, and what can be done about it.
fn unread(process: &Process) -> Vec<String> {
    let why = |what: &str, error: &io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ": run this command as that process's user, or as root"
            }
            _ => "",
        };
        format!("the {what} of process {} cannot be read ({error}){remedy}", process.pid)
    };
    let mappings = process.mappings.as_ref().err().map(|error| why("mappings", error));
    let open = process.open.as_ref().err().map(|error| why("descriptors", error));
    [mappings, open].into_iter().flatten().collect()
}

/// What the process has, and what is not known of it.
fn about(process: &Process, unread: &[String]) -> String {
    let mappings = process.mappings.as_ref().ok();
    let mappings = mappings.map(|count| format!("{} mappings", grouped(*count)));
    let open = process.open.as_ref().ok().map(|open| match *open {
        Open { vms: 0, .. } => "no VM".to_owned(),
        Open { vms: 1, vcpus, eventfds } => {
            format!("1 VM with {}, and {}", things(vcpus, "vCPU"), things(eventfds, "eventfd"))
        }
        Open { vms, eventfds, .. } => {
            format!("{}, and {}", things(vms, "VM"), things(eventfds, "eventfd"))
        }
    });
    let has: Vec<String> = [mappings, open].into_iter().flatten().collect();
    let program = if process.program.is_empty() { "a program" } else { &process.program };
    let told = format!("Process {} ({program}) has {}.", process.pid, has.join(", "));
    let vms = process.open.as_ref().map_or(0, |open| open.vms);
    let unknown = match vms {
        0 => "",
        1 => " How many memslots the VM has, the kernel tells nobody.",
        _ => " How many memslots a VM has, and which vCPU is of which VM, the kernel tells nobody.",
    };
    let unread = unread.iter().map(|why| format!(" What is not known: {why}."));
    told + unknown + &unread.collect::<String>()
}

/// What the times are of.
fn of_file(path: &Path, document: &Document) -> String {
    let differ = document.host.differences(&crate::built::host());
    let other = if differ.is_empty() {
        String::new()
    } else {
        format!(" It was measured on another host ({}).", differ.join("; "))
    };
    format!("The times below are those of {}.{other}", path.display())
}

/// Measures what grows with what the process has.
fn measure(vmm: &Vmm) -> Result<Document, Failure> {
    let pairs = vmm.pairs();
    let how = Options { rounds: ROUNDS, seed: 1 };
    let mut document = measured::document(how);
    let mut kernel = KvmKernel::new(Kvm::open().map_err(no_laws)?);
    let mut progress = progress(false, &Bar::new());
    for (which, pair) in (1..).zip(&pairs) {
        let place = (which, pairs.len());
        document.laws.push(measured::entry(&mut kernel, *pair, how, place, &mut *progress));
    }
    Ok(document)
}

/// There are no laws.
fn no_laws(why: impl Display) -> Failure {
    Failure::nothing_ran(format_args!("{why}; --laws FILE has those of another time"))
}

fn filled(text: &str, width: usize) -> String {
    mayfly_laws::filled(width, "", text) + "\n"
}
