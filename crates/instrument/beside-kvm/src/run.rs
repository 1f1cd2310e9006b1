//! The machines of all sides, started one after the other, and the output of their consoles.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use mayfly_lifecycle_steps::{Architecture, Course, Line, REGISTERS, Row, Until};
use mayfly_qemu::{Archive, Interrupt, to_the_end_with};

use crate::machine::{Files, Processor, qemu};
use crate::way::Way;

/// What runs the lifecycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Mayfly, at EL2, or as a host of SVM's.
    Mayfly,
    /// Linux's KVM, in a Linux as its distribution starts it.
    Kvm,
    /// The same in a Linux that was started without what a host of VMs can be without ([`LEAN`]).
    Lean,
}

impl Side {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mayfly, Self::Kvm, Self::Lean];

    /// The name of its variant in records.
    pub const fn variant(self) -> &'static str {
        match self {
            Self::Mayfly => "mayfly",
            Self::Kvm => "kvm",
            Self::Lean => "kvm-lean",
        }
    }

    /// Whether it has such a step.
    pub(crate) fn has(self, row: Row) -> bool {
        self == Self::Mayfly || !row.is_of_mayfly_alone()
    }

    /// Whether its machine tells by which way it measures what follows.
    fn has_ways(self, course: Course) -> bool {
        self != Self::Mayfly && Way::of(course).next().is_some()
    }
}

/// What a lean Linux is started with: no files for debugging, of which KVM makes many for each VM; no mitigations of
/// speculation; memory is not zeroed once more when it is allocated; no accounting of memory by control groups.
pub const LEAN: &str = "debugfs=off mitigations=off init_on_alloc=0 cgroup_disable=memory";

/// What one side has measured by one of its ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByWay {
    /// Which; of KVM's dirty logs and forks alone.
    pub way: Option<Way>,
    /// The samples.
    pub samples: Vec<Line>,
}

/// What all sides have measured on a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What was run.
    pub course: Course,
    /// The processor.
    pub processor: Processor,
    /// The version of QEMU.
    pub qemu: String,
    /// The processor's registers that tell it from others, as Mayfly reads them: `name=value`, words.
    pub registers: String,
    /// Rounds of lifecycles.
    pub rounds: u32,
    /// KVM's kernel, as `uname -r` names it.
    pub linux: String,
    /// What was not measured, and why: a way that a kernel does not have, whose harvests have not named what was written,
    /// or whose forks have not found what they should.
    pub left_out: Vec<String>,
    /// What each side has measured, in the order of [`Side::ALL`].
    pub sides: [Vec<ByWay>; Side::ALL.len()],
}

impl Measured {
    /// Of the machine.
    pub const fn architecture(&self) -> Architecture {
        self.processor.architecture()
    }

    /// The steps that were measured.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Row> + Clone {
        Row::of(self.course, self.architecture())
    }

    /// What a side has measured, by each of its ways.
    pub fn of(&self, side: Side) -> &[ByWay] {
        &self.sides[side as usize]
    }
}

/// What precedes the kernel's version on the console.
pub(crate) const LINUX: &str = "mayfly-beside-kvm linux ";

/// The first process of the Linux. KVM and perf are built in, or KVM's modules are loaded. Only KVM prints at which level the
/// kernel runs, when it starts. Huge pages are given to processes that ask for them, at once, and never later.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
pages=/sys/kernel/mm/transparent_hugepage
echo madvise >$pages/enabled
echo 0 >$pages/khugepaged/defrag
LOADS
at=
if /bin/busybox dmesg | /bin/busybox grep -q 'kvm .*: VHE mode initialized'; then at=--kernel-at-el2; fi
echo \"mayfly-beside-kvm linux $(/bin/busybox uname -r)\"
MEASURES
/bin/busybox poweroff -f
";

/// What loads the modules that a machine has.
fn loads(files: &Files) -> String {
    let names = files.modules.iter().filter_map(|path| path.file_name()?.to_str());
    let loads = names.map(|name| format!("/bin/busybox insmod /modules/{name}"));
    loads.collect::<Vec<_>>().join("\n")
}

/// What precedes the name of a way on the console: what follows was measured by it.
const WAY: &str = "mayfly-beside-kvm way ";

/// What the first process measures.
fn measures(course: Course, rounds: u32) -> String {
    let lives = format!("/mayfly lives --rounds {rounds} $at");
    match course {
        Course::Lives => format!("{lives} 2>&1"),
        Course::DirtyLog | Course::Fork => {
            let by = |way| format!("echo \"{WAY}{way}\"\n{lives} --way {way} 2>&1");
            Way::of(course).map(by).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Starts each on a processor, for so many rounds of a course, and reads its samples. A way that a kernel does not have is
/// left out.
///
/// # Errors
///
/// Why one of them did not end, or which line of its output is wrong.
pub fn run(
    course: Course,
    processor: Processor,
    rounds: u32,
    files: &Files,
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    let scratch = tempfile::Builder::new().prefix("mayfly-beside-kvm-").tempdir();
    let scratch = scratch.context("cannot make a temporary directory")?;
    let mut measured = Measured {
        course,
        processor,
        qemu: files.qemu.clone(),
        registers: String::new(),
        rounds,
        linux: String::new(),
        left_out: Vec::new(),
        sides: Default::default(),
    };
    for side in Side::ALL {
        let serial = scratch.path().join(side.variant());
        let boots = match side {
            Side::Mayfly => vec![
                ("-kernel", files.image.clone().into_os_string()),
                ("-append", format!("measure {} {rounds}; poweroff", course.name()).into()),
            ],
            Side::Kvm | Side::Lean => {
                let initial = scratch.path().join("initial-files");
                write(&initial, &initial_files(files, course, rounds)?)?;
                linux(processor.architecture(), &files.kernel, &initial, side)
            }
        };
        let read = |said: &str| by_ways(said, course, processor.architecture(), side);
        let (said, (told, left_out)) = said(processor, side, &serial, &boots, interrupt, read)?;
        measured.sides[side as usize] = told;
        measured.left_out.extend(left_out);
        identify(&said, side, &mut measured.registers, &mut measured.linux)?;
    }
    Ok(measured)
}

/// What QEMU starts a side's Linux with.
pub(crate) fn linux(
    architecture: Architecture,
    kernel: &Path,
    initial: &Path,
    side: Side,
) -> Vec<(&'static str, OsString)> {
    let lean = if side == Side::Lean { LEAN } else { "" };
    let machine = match architecture {
        Architecture::Arm64 => "console=ttyAMA0",
        // Without the two options the kernel does not trust a clock that counts instructions, and takes a worse one.
        Architecture::X86 => "console=ttyS0 tsc=reliable no_timer_check",
    };
    let append = format!("{machine} quiet loglevel=1 panic=-1 {lean}");
    vec![("-kernel", kernel.into()), ("-initrd", initial.into()), ("-append", append.into())]
}

/// Runs a side's machine to its end. Returns what its console says, and what `read` makes of that; an error has the last
/// line of it.
pub(crate) fn said<T>(
    processor: Processor,
    side: Side,
    serial: &Path,
    boots: &[(&'static str, OsString)],
    interrupt: &Interrupt,
    read: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<(String, T)> {
    // The device by which Mayfly powers a PC off makes an odd number of its status.
    let status = i32::from(side == Side::Mayfly && processor.architecture() == Architecture::X86);
    let ran = to_the_end_with(status, qemu(processor, serial, boots), serial, interrupt);
    // The output of a serial line is not always text.
    let said = String::from_utf8_lossy(&fs::read(serial).unwrap_or_default()).into_owned();
    let what = || format!("{processor}, {}: {}", side.variant(), last(&said));
    let told = ran.and_then(|()| read(&said)).with_context(what)?;
    Ok((said, told))
}

/// Takes what a side's console says of the machine: Mayfly's of the processor, and a Linux's of its version.
pub(crate) fn identify(
    said: &str,
    side: Side,
    registers: &mut String,
    linux: &mut String,
) -> anyhow::Result<()> {
    if side == Side::Mayfly {
        let found = after(said, REGISTERS);
        *registers = found.context("Mayfly has not printed its registers")?;
    } else {
        let found = after(said, LINUX);
        *linux = found.context("the Linux has not printed its version")?;
    }
    Ok(())
}

/// What a way says that is left out: its kernel does not have it, it has lost writes, or its forks are not as they should be.
const LEFT_OUT: [&str; 4] = ["KVM_ENABLE_CAP", "userfaultfd", "a harvest has named", "a fork has"];

/// What a console has, by each way of its side; and what is left out, and why.
fn by_ways(
    said: &str,
    course: Course,
    architecture: Architecture,
    side: Side,
) -> anyhow::Result<(Vec<ByWay>, Vec<String>)> {
    let samples = |said: &str| samples(said, course, architecture, side);
    if !side.has_ways(course) {
        let all = vec![ByWay { way: None, samples: samples(said)? }];
        return Ok((all, Vec::new()));
    }
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for part in said.split(WAY).skip(1) {
        let name = part.lines().next().unwrap_or_default().trim_end();
        let way: Way = name.parse().map_err(anyhow::Error::msg)?;
        let why = part.lines().find(|line| LEFT_OUT.iter().any(|why| line.contains(why)));
        if let Some(why) = why.filter(|_| !part.contains(Line::BEGIN)) {
            left_out.push(format!("{}-{way}: {}", side.variant(), why.trim()));
            continue;
        }
        let samples = samples(part).with_context(|| format!("by {way}"))?;
        all.push(ByWay { way: Some(way), samples });
    }
    ensure!(!all.is_empty(), "KVM was measured by none of its ways");
    Ok((all, left_out))
}

/// The samples that a console has.
pub(crate) fn samples(
    said: &str,
    course: Course,
    architecture: Architecture,
    side: Side,
) -> anyhow::Result<Vec<Line>> {
    let mut samples = Vec::new();
    match mayfly_lifecycle_steps::read(said, |line| samples.push(line)) {
        Ok(()) => {}
        Err(wrong) => bail!("{wrong}"),
    }
    let rows = Row::of(course, architecture).filter(|row| side.has(*row));
    for (row, until) in rows.flat_map(|row| Until::ALL.map(|until| (row, until))) {
        let is_it = |line: &Line| (line.row, line.until) == (row, until);
        ensure!(samples.iter().any(is_it), "it has not measured {}, {}", row.name(), until.name());
    }
    Ok(samples)
}

/// The rest of the line of a console that begins with `mark`.
fn after(said: &str, mark: &str) -> Option<String> {
    let rest = said.lines().find_map(|line| line.trim_end().strip_prefix(mark))?;
    Some(rest.to_owned()).filter(|rest| !rest.is_empty())
}

/// The last line of a console that is no sample: it says what is wrong, if anything is. What a `mayfly` says comes before what
/// its kernel says behind it.
fn last(said: &str) -> String {
    let lines = said.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with(Line::MARK));
    let own = lines.clone().rfind(|line| line.starts_with("mayfly: "));
    let line = own.or_else(|| lines.next_back()).unwrap_or("nothing");
    format!("the last line that it printed: {}", line.chars().take(200).collect::<String>())
}

/// The initial files of the Linux.
fn initial_files(files: &Files, course: Course, rounds: u32) -> anyhow::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "modules", "proc", "sys"] {
        archive.directory(directory);
    }
    for module in &files.modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("modules/{name}"), &read(module)?);
    }
    let init = INIT.replace("LOADS", &loads(files)).replace("MEASURES", &measures(course, rounds));
    archive.file("init", init.as_bytes());
    archive.file("bin/busybox", &read(&files.busybox)?);
    archive.file("mayfly", &read(&files.mayfly)?);
    Ok(archive.finish())
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARM64: Architecture = Architecture::Arm64;

    #[test]
    fn what_a_console_has_beside_samples_says_what_went_wrong() {
        let said = format!("booting\r\n{}\r\nmayfly: KVM_RUN: no\r\n\r\n", Line::BEGIN);
        assert_eq!(last(&said), "the last line that it printed: mayfly: KVM_RUN: no");
        let behind = format!("{said}[    3.1] reboot: Power down\r\n");
        assert_eq!(last(&behind), last(&said));
        assert_eq!(last("one\r\ntwo\r\n"), "the last line that it printed: two");
        let error = samples(&said, Course::Lives, ARM64, Side::Kvm).unwrap_err();
        assert_eq!(error.to_string(), "its measurement did not end");
        assert_eq!(last(""), "the last line that it printed: nothing");
    }

    #[test]
    fn a_console_names_its_kernel_and_has_the_samples() {
        let all = crate::rows::tests::samples(Course::Lives, [1, 2, 3]);
        let console = |lines: &[Line]| {
            let text: Vec<_> = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let (text, end) = (text.concat(), Line::end(lines.len() as u32));
            format!("{LINUX}6.12.1-arm64\r\n{}\r\n{text}{end}\r\n[ 9.8] reboot\r\n", Line::BEGIN)
        };
        let said = console(&all);
        assert_eq!(after(&said, LINUX).as_deref(), Some("6.12.1-arm64"));
        assert_eq!(samples(&said, Course::Lives, ARM64, Side::Kvm).unwrap(), all);
        let error =
            samples(&console(&all[..all.len() - 1]), Course::Lives, ARM64, Side::Lean).unwrap_err();
        assert_eq!(error.to_string(), "it has not measured destroyed-2m, all");
        assert_eq!(after("nothing", LINUX), None);
    }

    #[test]
    fn a_step_of_mayfly_alone_is_missed_on_mayfly_alone() {
        let all = crate::rows::tests::samples(Course::Lives, [1, 2, 3]);
        let some: Vec<_> = all.iter().filter(|line| !line.row.is_of_mayfly_alone()).collect();
        let text: Vec<_> = some.iter().map(|line| format!("{line}\n")).collect();
        let text = text.concat();
        let said = format!("{}\n{text}{}\n", Line::BEGIN, Line::end(some.len() as u32));
        assert!(some.len() < all.len() && samples(&said, Course::Lives, ARM64, Side::Lean).is_ok());
        let error = samples(&said, Course::Lives, ARM64, Side::Mayfly).unwrap_err();
        assert_eq!(error.to_string(), "it has not measured devices-touched, caller");
    }

    #[test]
    fn each_way_has_its_samples_and_one_that_a_kernel_does_not_have_or_that_is_wrong_is_left_out() {
        let all = crate::rows::tests::samples(Course::DirtyLog, [1, 2, 3]);
        let text: Vec<_> = all.iter().map(|line| format!("{line}\r\n")).collect();
        let text =
            format!("{}\r\n{}{}\r\n", Line::BEGIN, text.concat(), Line::end(all.len() as u32));
        let refused = "mayfly: KVM_ENABLE_CAP: Invalid argument\r\n";
        let said = format!("{WAY}write-protect\r\n{text}{WAY}ring\r\n{refused}");
        let by_way = ByWay { way: Some(Way::WriteProtect), samples: all };
        let course = Course::DirtyLog;
        let (all, left_out) = by_ways(&said, course, ARM64, Side::Lean).unwrap();
        assert_eq!(all, [by_way]);
        let expected = "kvm-lean-ring: mayfly: KVM_ENABLE_CAP: Invalid argument";
        assert_eq!(left_out, [expected]);
        let none = format!("{WAY}ring\r\n{refused}");
        let error = by_ways(&none, course, ARM64, Side::Kvm).unwrap_err();
        assert_eq!(error.to_string(), "KVM was measured by none of its ways");
        let wrong = "mayfly: by prefetch, a fork has 7 pages that are not its own\r\n";
        let (_, left_out) =
            by_ways(&format!("{said}{WAY}prefetch\r\n{wrong}"), course, ARM64, Side::Kvm).unwrap();
        assert_eq!(left_out[1], format!("kvm-prefetch: {}", wrong.trim()));
        let cut = said.replace(&Line::end(0).to_string()[..15], "");
        assert!(by_ways(&cut, course, ARM64, Side::Kvm).is_err());
        assert!(
            by_ways(&said.replace("write-protect", "other"), course, ARM64, Side::Kvm).is_err()
        );
        let failed = format!("{WAY}ring\r\nmayfly: KVM_RUN: Bad address\r\n");
        assert!(by_ways(&format!("{said}{failed}"), course, ARM64, Side::Kvm).is_err());
    }

    #[test]
    fn the_sides_are_in_the_order_in_which_their_samples_are() {
        for (number, side) in Side::ALL.into_iter().enumerate() {
            assert_eq!(side as usize, number);
        }
    }

    #[test]
    fn the_first_process_runs_as_many_rounds_as_are_wanted() {
        assert_eq!(INIT.matches("MEASURES").count(), 1);
        assert_eq!(measures(Course::Lives, 7), "/mayfly lives --rounds 7 $at 2>&1");
        let by_ways = measures(Course::DirtyLog, 7);
        assert_eq!(by_ways.matches("lives --rounds 7 ").count(), 4);
        assert!(by_ways.contains("--way ring 2>&1"), "{by_ways}");
        let by_ways = measures(Course::Fork, 7);
        assert!(by_ways.starts_with(&format!("echo \"{WAY}map-private\"\n")), "{by_ways}");
        assert!(INIT.contains(LINUX));
        assert!(INIT.ends_with("poweroff -f\n"));
    }
}
