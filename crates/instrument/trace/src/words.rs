//! What threads, calls and samples are called where a person looks at them: in a timeline, on a page, in a list.

use std::collections::HashSet;

use mayfly_record::units::{bytes, duration};

use crate::life::runs_vcpu;
use crate::record::{Call, Object, Process, Sample, Stall, Thread, Trace, Verdict};

/// Arguments that are read bit by bit, or are addresses.
const IN_HEXADECIMAL: [&str; 7] =
    ["flags", "address", "guest", "memory", "arg0", "attr", "datamatch"];

/// An argument's value.
pub(crate) fn argument(name: &str, value: u64) -> String {
    match name {
        "size" | "length" => bytes(value),
        "time" => duration(value),
        _ if IN_HEXADECIMAL.contains(&name) => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

/// What a call returned: an error by its name, and an address as one.
pub(crate) fn result(result: i64) -> String {
    match i32::try_from(-result) {
        _ if result > i64::from(u32::MAX) => format!("{result:#x}"),
        Ok(error @ 1..=4095) => std::io::Error::from_raw_os_error(error).to_string(),
        _ => result.to_string(),
    }
}

/// What a thread did when it was looked at.
pub(crate) fn doing(sample: &Sample) -> String {
    match (&sample.call, &sample.channel) {
        _ if runs_vcpu(sample) => "KVM_RUN".to_owned(),
        (_, Some(channel)) => channel.clone(),
        (Some((number, _)), None) => format!("system call {number}"),
        (None, None) => "its own code".to_owned(),
    }
}

/// The cause of a wait, in a few words.
pub(crate) fn cause(stall: &Stall) -> String {
    match &stall.cause {
        None => "unexplained".to_owned(),
        Some(cause) => format!("{} ({})", cause.code, verdict(cause.verdict)),
    }
}

/// How sure a cause is.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Likely => "likely",
        Verdict::Proved => "proved",
    }
}

impl Trace {
    /// What each thread is called: by the vCPU that it ran first, if it ran one.
    pub(crate) fn thread_names(&self) -> Vec<String> {
        let runs: Vec<&Call> = self.calls.iter().filter(|call| call.name == "KVM_RUN").collect();
        let seen: HashSet<i32> =
            self.samples.iter().filter(|one| runs_vcpu(one)).map(|one| one.tid).collect();
        let name = |thread: &Thread| {
            let mut own = runs.iter().filter(|run| run.tid == thread.tid && lived(thread, run.at));
            match own.find_map(|run| run.on.as_ref()) {
                Some(vcpu @ Object::Vcpu { .. }) => format!("{vcpu}, thread {}", thread.tid),
                _ if thread.vcpu || seen.contains(&thread.tid) => {
                    format!("a vCPU, thread {}", thread.tid)
                }
                _ if thread.of_kvm => format!("KVM's worker, thread {}", thread.tid),
                _ => match &thread.worker {
                    Some(name) => format!("the kernel's worker {name}, thread {}", thread.tid),
                    None => format!("thread {}", thread.tid),
                },
            }
        };
        self.threads.iter().map(name).collect()
    }

    /// Which of the threads had a number at a time; that one's that began last, if several did.
    pub(crate) fn thread_number(&self, tid: i32, at: u64) -> Option<usize> {
        self.threads.iter().rposition(|thread| thread.tid == tid && lived(thread, at))
    }

    /// When a call ended; where that was not seen, when its thread was seen to do something else, or was gone.
    pub(crate) fn ended_by(&self, call: &Call, next: Option<u64>) -> u64 {
        let last = || {
            let mut threads = self.threads.iter();
            let thread = threads.find(|one| one.tid == call.tid && lived(one, call.at));
            thread.and_then(|one| one.ending.or(one.gone)).unwrap_or(self.span)
        };
        let ended = call.took.map_or_else(|| next.unwrap_or_else(last), |took| call.at + took);
        ended.max(call.at)
    }
}

/// What a process is called: the program that it executed last.
pub(crate) fn program(process: &Process) -> &str {
    let path = process.executed.last().map_or("", |(_, path)| path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a thread was there at a time: numbers are used again.
pub(crate) fn lived(thread: &Thread, at: u64) -> bool {
    at >= thread.at && thread.gone.is_none_or(|gone| at <= gone)
}
