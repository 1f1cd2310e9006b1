//! Both machines, started one after the other, and the output of their consoles.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use mayfly_lifecycle_steps::{Line, Row, Until};
use mayfly_qemu::{Archive, Interrupt, to_the_end};

use crate::machine::{Files, Processor, qemu};

/// What runs the lifecycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Mayfly, at EL2.
    Mayfly,
    /// Linux's KVM.
    Kvm,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mayfly, Self::Kvm];

    /// The name of its variant in records.
    pub const fn variant(self) -> &'static str {
        match self {
            Self::Mayfly => "mayfly",
            Self::Kvm => "kvm",
        }
    }
}

/// What both sides have measured on a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Both {
    /// The processor.
    pub processor: Processor,
    /// Rounds of lifecycles.
    pub rounds: u32,
    /// The other side's kernel, as `uname -r` names it.
    pub linux: String,
    /// Mayfly's samples.
    pub mayfly: Vec<Line>,
    /// KVM's.
    pub kvm: Vec<Line>,
}

impl Both {
    /// The samples of a side.
    pub fn samples(&self, side: Side) -> &[Line] {
        match side {
            Side::Mayfly => &self.mayfly,
            Side::Kvm => &self.kvm,
        }
    }
}

/// What precedes the kernel's version on the console.
const LINUX: &str = "mayfly-beside-kvm linux ";

/// The first process of the Linux. KVM and perf are built in. Only KVM prints at which level the kernel runs, when it
/// starts. Huge pages are given to processes that ask for them, at once, and never later.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
pages=/sys/kernel/mm/transparent_hugepage
echo madvise >$pages/enabled
echo 0 >$pages/khugepaged/defrag
at=
if /bin/busybox dmesg | /bin/busybox grep -q 'kvm .*: VHE mode initialized'; then at=--kernel-at-el2; fi
echo \"mayfly-beside-kvm linux $(/bin/busybox uname -r)\"
/mayfly lives --rounds ROUNDS $at 2>&1
/bin/busybox poweroff -f
";

/// Starts both on a processor, for so many rounds of lifecycles each, and reads their samples.
///
/// # Errors
///
/// Why one of them did not end, or which line of its output is wrong.
pub fn run(
    processor: Processor,
    rounds: u32,
    files: &Files,
    interrupt: &Interrupt,
) -> anyhow::Result<Both> {
    let scratch = tempfile::Builder::new().prefix("mayfly-beside-kvm-").tempdir();
    let scratch = scratch.context("cannot make a temporary directory")?;
    let mut both =
        Both { processor, rounds, linux: String::new(), mayfly: Vec::new(), kvm: Vec::new() };
    for side in Side::ALL {
        let serial = scratch.path().join(side.variant());
        let boots = match side {
            Side::Mayfly => vec![
                ("-kernel", files.image.clone().into_os_string()),
                ("-append", format!("measure {rounds}; poweroff").into()),
            ],
            Side::Kvm => {
                let initial = scratch.path().join("initial-files");
                fs::write(&initial, initial_files(files, rounds)?)
                    .with_context(|| format!("cannot write {}", initial.display()))?;
                vec![
                    ("-kernel", files.kernel.clone().into_os_string()),
                    ("-initrd", initial.into_os_string()),
                    ("-append", "console=ttyAMA0 quiet loglevel=1 panic=-1".into()),
                ]
            }
        };
        let ran = to_the_end(qemu(processor, &serial, &boots), &serial, interrupt);
        // The output of a serial line is not always text.
        let said = String::from_utf8_lossy(&fs::read(&serial).unwrap_or_default()).into_owned();
        ran.with_context(|| format!("{processor}, {}: {}", side.variant(), last(&said)))?;
        let told = samples(&said)
            .with_context(|| format!("{processor}, {}: {}", side.variant(), last(&said)))?;
        match side {
            Side::Mayfly => both.mayfly = told,
            Side::Kvm => {
                both.kvm = told;
                both.linux = linux(&said).context("the Linux has not printed its version")?;
            }
        }
    }
    Ok(both)
}

/// The samples that a console has.
pub(crate) fn samples(said: &str) -> anyhow::Result<Vec<Line>> {
    let mut samples = Vec::new();
    match mayfly_lifecycle_steps::read(said, |line| samples.push(line)) {
        Ok(()) => {}
        Err(wrong) => bail!("{wrong}"),
    }
    for (row, until) in Row::ALL.iter().flat_map(|row| Until::ALL.map(|until| (row, until))) {
        let is_it = |line: &Line| (line.row, line.until) == (*row, until);
        ensure!(samples.iter().any(is_it), "it has not measured {}, {}", row.name(), until.name());
    }
    Ok(samples)
}

/// The version of the kernel that a console names.
fn linux(said: &str) -> Option<String> {
    let version = said.lines().find_map(|line| line.trim_end().strip_prefix(LINUX))?;
    Some(version.to_owned()).filter(|version| !version.is_empty())
}

/// The last line of a console that is no sample: it says what is wrong, if anything is.
fn last(said: &str) -> String {
    let mut lines = said.lines().map(str::trim);
    let line = lines.rfind(|line| !line.is_empty() && !line.starts_with(Line::MARK));
    let line = line.unwrap_or("nothing");
    format!("the last line that it printed: {}", line.chars().take(200).collect::<String>())
}

/// The initial files of the Linux.
fn initial_files(files: &Files, rounds: u32) -> anyhow::Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "proc", "sys"] {
        archive.directory(directory);
    }
    archive.file("init", INIT.replace("ROUNDS", &rounds.to_string()).as_bytes());
    archive.file("bin/busybox", &read(&files.busybox)?);
    archive.file("mayfly", &read(&files.mayfly)?);
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_console_has_beside_samples_says_what_went_wrong() {
        let said = format!("booting\r\n{}\r\nmayfly: KVM_RUN: no\r\n\r\n", Line::BEGIN);
        assert_eq!(last(&said), "the last line that it printed: mayfly: KVM_RUN: no");
        assert_eq!(samples(&said).unwrap_err().to_string(), "its measurement did not end");
        assert_eq!(last(""), "the last line that it printed: nothing");
    }

    #[test]
    fn a_console_names_its_kernel_and_has_the_samples() {
        let all = crate::rows::tests::samples([1, 2, 3]);
        let console = |lines: &[Line]| {
            let text: Vec<_> = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let (text, end) = (text.concat(), Line::end(lines.len() as u32));
            format!("{LINUX}6.12.1-arm64\r\n{}\r\n{text}{end}\r\n[ 9.8] reboot\r\n", Line::BEGIN)
        };
        let said = console(&all);
        assert_eq!(linux(&said).as_deref(), Some("6.12.1-arm64"));
        assert_eq!(samples(&said).unwrap(), all);
        let error = samples(&console(&all[..all.len() - 1])).unwrap_err();
        assert_eq!(error.to_string(), "it has not measured destroyed-2m, all");
        assert_eq!(linux("nothing"), None);
    }

    #[test]
    fn the_first_process_runs_as_many_rounds_as_are_wanted() {
        assert_eq!(INIT.matches("ROUNDS").count(), 1);
        assert!(INIT.contains(LINUX));
        assert!(INIT.ends_with("poweroff -f\n"));
    }
}
