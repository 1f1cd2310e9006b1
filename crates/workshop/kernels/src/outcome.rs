//! The result of running a kernel in a machine.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use mayfly_doctor::Document;
use mayfly_laws::Entry;
use mayfly_qemu::{Interrupt, to_the_end};
use mayfly_record::{Record, ResultRow, units};

use crate::archive::{Arch, Kernel};
use crate::guest::{self, Left, Said};
use crate::job::Job;
use crate::machine::Machine;

/// The directory of records, and of a machine's files while it runs.
const RECORDS: &str = "target/kernels/records";

/// The number of last console lines that are shown after a failure.
const LAST: usize = 6;

/// The result of a kernel in a machine.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) machine: Machine,
    pub(crate) kernel: Kernel,
    /// The jobs' records.
    pub(crate) records: Vec<Record>,
    /// The doctor's findings.
    pub(crate) examination: Option<Document>,
    /// The pairs that a law was looked for.
    pub(crate) laws: Vec<Entry>,
    /// The failures, one line each.
    pub(crate) wrong: Vec<String>,
}

impl Outcome {
    /// The rows that have metrics.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &ResultRow> {
        let rows = self.records.iter().flat_map(|record| &record.results);
        rows.filter(|row| row.skipped.is_none() && !row.metrics.is_empty())
    }

    /// Whether anything was measured that tables have.
    pub(crate) fn has_figures(&self) -> bool {
        self.rows().next().is_some() || self.laws.iter().any(|entry| entry.law.is_some())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, kernel, wrong, .. } = self;
        write!(f, "{} on {}: ", kernel.version, machine.name())?;
        let measured = self.laws.iter().filter(|entry| entry.law.is_some()).count();
        match (self.rows().count(), measured) {
            (0, 0) => write!(f, "nothing was measured")?,
            (0, pairs) => write!(f, "{}", units::things(pairs as u64, "pair"))?,
            (rows, _) => write!(f, "{rows} rows")?,
        }
        wrong.iter().try_for_each(|why| write!(f, "; {why}"))
    }
}

/// Boots a kernel in a machine, runs the jobs there, and keeps their records.
pub(crate) fn of(
    machine: Machine,
    kernel: &Kernel,
    jobs: &[Job],
    mayfly: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        machine,
        kernel: kernel.clone(),
        records: Vec::new(),
        examination: None,
        laws: Vec::new(),
        wrong: Vec::new(),
    };
    // On arm64 it is built in.
    if machine.arch() == Arch::Amd64 && !kernel.directory.join("modules/kvm.ko").exists() {
        outcome.wrong.push("its KVM is a module, which the archive has no more".to_owned());
        return Ok(outcome);
    }
    fs::create_dir_all(RECORDS).with_context(|| format!("cannot make {RECORDS}"))?;
    let scratch = Scratch::new()?;
    let (files, serial) = (scratch.0.join("initial-files"), scratch.0.join("serial"));
    fs::write(&files, guest::initial_files(kernel, mayfly, jobs)?)
        .with_context(|| format!("cannot write {}", files.display()))?;
    let qemu = machine.qemu(&kernel.directory.join("vmlinuz"), &files, &serial);
    let ran = to_the_end(qemu, &serial, interrupt);
    // What a serial line has is not always text.
    let said = String::from_utf8_lossy(&fs::read(&serial).unwrap_or_default()).into_owned();
    for job in jobs {
        let Said { left, wrong } = guest::said(job, &said);
        outcome.wrong.extend(wrong.map(|why| format!("{}: {why}", job.name)));
        if let Some(left) = left {
            let name = format!("{}-{}-{}.json", machine.name(), kernel.version, job.name);
            let path = Path::new(RECORDS).join(name);
            fs::write(&path, left.to_json())
                .with_context(|| format!("cannot write {}", path.display()))?;
            match left {
                Left::Record(record) => outcome.records.push(*record),
                Left::Examination(document) => outcome.examination = Some(*document),
                Left::Laws(document) => outcome.laws.extend(document.laws),
            }
        }
    }
    if let Err(why) = ran {
        outcome.wrong.insert(0, format!("{why:#}"));
    }
    if !outcome.wrong.is_empty() && !interrupt.came() {
        let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in &lines[lines.len().saturating_sub(LAST)..] {
            eprintln!("  {}", line.trim_end().chars().take(200).collect::<String>());
        }
    }
    Ok(outcome)
}

/// A directory for as long as it is needed.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = Path::new("target/kernels").join(format!("machine-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
