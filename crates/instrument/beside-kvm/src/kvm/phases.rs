//! What a VMM, its guests and the kernel execute in phases whose ends a guest says.

use std::ffi::OsString;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mayfly_lifecycle_steps::{Executed, Phase, times};

use super::arm64::perf::{
    EXCLUDE_GUEST, EXCLUDE_HOST, EXCLUDE_HV, EXCLUDE_KERNEL, EXCLUDE_USER, Group,
};
use crate::guests::ENDED;
use crate::kernel_at::KernelAt;

/// All instructions, those of programs of the host's, those of guests, and those at EL2.
struct Counters {
    group: Group<4>,
    kernel_at: KernelAt,
}

/// A moment: what they show, and when.
#[derive(Clone, Copy)]
struct Moment {
    counts: [u64; 4],
    at: Instant,
}

impl Counters {
    /// Begins to count. KVM itself turns counters on and off that exclude guests or the host, as it enters and leaves a
    /// guest. A kernel at EL2 changes their filter of EL0 instead (`kvm_vcpu_pmu_restore_guest`). So a counter that excludes
    /// the host counts all of guests, and what the kernel executes is the rest of all.
    fn begin(kernel_at: KernelAt) -> anyhow::Result<Self> {
        let filters = [
            0,
            EXCLUDE_KERNEL | EXCLUDE_HV | EXCLUDE_GUEST,
            EXCLUDE_HOST | EXCLUDE_HV,
            EXCLUDE_USER | EXCLUDE_KERNEL,
        ];
        Ok(Self { group: Group::open(filters)?, kernel_at })
    }

    fn now(&self) -> anyhow::Result<Moment> {
        Ok(Moment { counts: self.group.read()?, at: Instant::now() })
    }

    fn phase<'a>(&self, name: &'a str, earlier: Moment, later: Moment) -> Phase<'a> {
        let more = |index: usize| later.counts[index] - earlier.counts[index];
        let (vmm, guest) = (more(1), more(2));
        let kernel = more(0).saturating_sub(vmm + guest);
        let executed = match self.kernel_at {
            KernelAt::El1 => {
                let el2 = more(3).min(kernel);
                Executed { vmm, el1: kernel - el2, el2, guest }
            }
            KernelAt::El2 => Executed { vmm, el1: 0, el2: kernel, guest },
        };
        let nanoseconds = later.at.duration_since(earlier.at).as_nanos();
        Phase { name, executed, nanoseconds: u64::try_from(nanoseconds).unwrap_or(u64::MAX) }
    }
}

/// Runs a program and counts its phases: see [`super::phases`].
pub(super) fn all(command: &[OsString], last: &str, kernel_at: KernelAt) -> anyhow::Result<String> {
    let (program, arguments) = command.split_first().context("there is no program to run")?;
    let counters = Counters::begin(kernel_at)?;
    let mut earlier = counters.now()?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    // Nothing is printed until the end: a console that is written to causes interrupts.
    let (mut phases, mut said) = (String::new(), String::new());
    let mut output = BufReader::new(child.stdout.take().context("it has no output")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? != 0 {
        let text = String::from_utf8_lossy(&line);
        match text.trim_end().strip_prefix(ENDED) {
            Some(name) => {
                let later = counters.now()?;
                writeln!(phases, "{}", counters.phase(name, earlier, later))?;
                earlier = counters.now()?;
            }
            None => said.push_str(&text),
        }
        line.clear();
    }
    let status = child.wait()?;
    ensure!(status.success(), "{} ended with {status}, and said: {said}", program.display());
    // What is left to other threads belongs to the phase.
    sleep(Duration::from_millis(times::SETTLE_MILLISECONDS));
    let later = counters.now()?;
    writeln!(phases, "{}", counters.phase(last, earlier, later))?;
    Ok(phases + &said)
}
