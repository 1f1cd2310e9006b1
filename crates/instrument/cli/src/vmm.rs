//! `mayfly doctor --pid`: what KVM's calls take for a VMM that runs, by what it has.

use std::fmt::Display;
use std::io;
use std::path::Path;

use mayfly_kvm::Kvm;
use mayfly_lab::Bar;
use mayfly_laws::{Answer, Document, KvmKernel, Options, Vmm};
use mayfly_record::units::{grouped, things};
use mayfly_record::{Host, Sink};
use mayfly_watch::{Open, Process};
use rustix::process::geteuid;
use serde::Serialize;

use crate::failure::Failure;
use crate::kept;
use crate::measured;
use crate::output::Stream;
use crate::run::progress;
use crate::trace::is_there;

/// Samples of each point, where laws are measured for one process: a user waits for them.
const HOW: Options = Options { rounds: 7, seed: 1 };

/// What is asked of a process.
pub(crate) struct Asked<'a> {
    pub(crate) pid: i32,
    /// A file of laws. Without one, they are measured.
    pub(crate) laws: Option<&'a Path>,
    pub(crate) full: bool,
    pub(crate) quiet: bool,
    pub(crate) json: Option<&'a Sink>,
}

/// Tells of a process. Its laws are those of a file, or measured now.
pub(crate) fn vmm(asked: &Asked<'_>) -> Result<(), Failure> {
    let pid = asked.pid;
    // What is wrong with a file is said first: it has nothing to do with the process.
    let laws = match asked.laws {
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
    let stream = if asked.json.is_some_and(Sink::is_stdout) { Stream::Err } else { Stream::Out };
    let width = stream.width();
    let say = |text: &str| if asked.quiet { Ok(()) } else { stream.write(text) };
    say(&filled(&about(&process, &unread), width))?;
    let (whence, document) = match laws {
        Some((path, document)) => (of_file(path, &document), document),
        None if vmm.pairs().is_empty() => {
            let why = "Nothing was measured: no call of KVM is known to take more by what it has.";
            (why.to_owned(), measured::document(HOW))
        }
        None => ("The times below are of VMs made here just now.".to_owned(), measure(&vmm)?),
    };
    let kept = asked.json.map_or(Ok(()), |sink| {
        sink.write(&document_of(&process, &unread, &vmm, asked.laws, &document))
    });
    let told = match document.laws[..] {
        [] if asked.laws.is_none() => String::new(),
        _ => format!("\n{}", vmm.told(&document, width, asked.full)),
    };
    say(&format!("{}{told}", filled(&whence, width)))?;
    kept.map_err(Failure::runtime)
}

/// The same for programs.
fn document_of(
    process: &Process,
    unread: &[String],
    vmm: &Vmm,
    laws: Option<&Path>,
    document: &Document,
) -> String {
    let open = process.open.as_ref().ok();
    let said = Said {
        schema: "mayfly.doctor-pid/1",
        host: &document.host,
        process: Has {
            pid: process.pid,
            program: &process.program,
            mappings: vmm.mappings,
            vms: vmm.vms,
            vcpus: vmm.vcpus,
            eventfds: open.map(|open| open.eventfds),
        },
        unread,
        laws: laws.map(|path| path.to_string_lossy().into_owned()),
        of_other_host: document.host.differences(&crate::built::host()),
        calls: vmm.answers(document),
    };
    let mut text = serde_json::to_string_pretty(&said).expect("what is said has a JSON form");
    text.push('\n');
    text
}

/// What other programs read. What is not known has no member.
#[derive(Serialize)]
struct Said<'a> {
    schema: &'static str,
    /// Of the laws.
    host: &'a Host,
    process: Has<'a>,
    /// What of the process could not be read, and why.
    unread: &'a [String],
    /// The file that the laws are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    laws: Option<String>,
    /// In what the host of the laws differs from this one.
    of_other_host: Vec<String>,
    calls: Vec<Answer>,
}

#[derive(Serialize)]
struct Has<'a> {
    pid: i32,
    program: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vcpus: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eventfds: Option<u64>,
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
        let remedy = remedy(error.kind(), geteuid().is_root());
        format!("the {what} of process {} cannot be read ({error}){remedy}", process.pid)
    };
    let mappings = process.mappings.as_ref().err().map(|error| why("mappings", error));
    let open = process.open.as_ref().err().map(|error| why("descriptors", error));
    [mappings, open].into_iter().flatten().collect()
}

/// What can be done about an error, as root or as another user.
fn remedy(error: io::ErrorKind, is_root: bool) -> &'static str {
    match (error, is_root) {
        (io::ErrorKind::PermissionDenied, true) => {
            ": root may not either, so a sandbox or a security module forbids it"
        }
        (io::ErrorKind::PermissionDenied, false) => {
            ": run this command as that process's user, or as root"
        }
        _ => "",
    }
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
    let mut document = measured::document(HOW);
    let mut kernel = KvmKernel::new(Kvm::open().map_err(no_laws)?);
    let mut progress = progress(false, &Bar::new());
    for (which, pair) in (1..).zip(&pairs) {
        let place = (which, pairs.len());
        document.laws.push(measured::entry(
            &mut kernel,
            (*pair, u64::MAX),
            HOW,
            place,
            &mut *progress,
        ));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_run_the_command_as_root() {
        let denied = io::ErrorKind::PermissionDenied;
        assert!(remedy(denied, false).contains("as root"));
        assert!(!remedy(denied, true).contains("as root"));
        assert!(remedy(denied, true).contains("a sandbox or a security module"));
        assert_eq!(remedy(io::ErrorKind::NotFound, true), "");
    }
}
