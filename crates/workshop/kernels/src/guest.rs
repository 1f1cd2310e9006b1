//! The initial file system of the emulated machine: a busybox, KVM's modules, mayfly with its libraries, and a script that is
//! the first process.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use anyhow::{Context, bail};
use flate2::read::GzDecoder;
use mayfly_doctor::Document;
use mayfly_qemu::Archive;
use mayfly_record::Record;

use crate::archive::Kernel;
use crate::job::{Command, Job};

/// KVM's modules, each after the ones that it needs. A kernel with a built-in KVM has none to load.
const MODULES: [&str; 3] = ["irqbypass", "kvm", "kvm-amd"];

/// The lines before and after a record, which `xxd -p` prints. The record is compressed, because a serial line is slow.
const BEGIN: &str = "=== record of ";
const END: &str = "=== end of ";

/// The largest record in bytes that is decompressed.
const MOST: u64 = 64 << 20;

/// The script's beginning: it mounts every file system that Mayfly reads, and loads KVM.
const HEAD: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mount -t tmpfs tmp /tmp
mkfifo /tmp/said
for module in irqbypass kvm kvm-amd; do
    if [ -e /modules/$module.ko ]; then insmod /modules/$module.ko; fi
done
echo \"=== Linux $(uname -r)\"
";

/// The script of the first process: it runs `jobs` one after the other and prints the exit code of each. Mayfly's progress
/// goes through a pipe, because on a terminal Mayfly would redraw it again and again.
fn script(jobs: &[Job]) -> String {
    let mut script = HEAD.to_owned();
    for Job { name, command, arguments } in jobs {
        let words = command.words();
        let _ = write!(
            script,
            "echo '=== begins {name}'
cat /tmp/said &
/mayfly {words} --json /tmp/record {arguments} > /tmp/report 2> /tmp/said
code=$?
wait
echo \"=== exit code of {name}: $code\"
echo '{BEGIN}{name}'
[ ! -e /tmp/record ] || gzip -c /tmp/record | xxd -p
echo '{END}{name}'
rm -f /tmp/record
"
        );
    }
    script + "poweroff -f\n"
}

/// The libraries of a program, including the loader, as `ldd` names them; none, if it is static.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = process::Command::new("ldd").arg(program).stderr(Stdio::null()).output();
    listed.map_or_else(|_| Vec::new(), |listed| paths(&String::from_utf8_lossy(&listed.stdout)))
}

/// `name => /path (address)`, `/path (address)`, or something without a path.
fn paths(listed: &str) -> Vec<PathBuf> {
    let words = listed.lines().filter_map(|line| {
        line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from)
    });
    words.collect()
}

/// The initial file system.
pub(crate) fn initial_files(
    kernel: &Kernel,
    mayfly: &Path,
    jobs: &[Job],
) -> anyhow::Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "modules", "proc", "run", "sys", "tmp"] {
        archive.directory(directory);
    }
    archive.file("init", script(jobs).as_bytes());
    archive.file("bin/busybox", &read(&kernel.directory.with_file_name("busybox"))?);
    archive.file("mayfly", &read(mayfly)?);
    let mut directories = BTreeSet::new();
    for library in libraries(mayfly) {
        for parent in library.ancestors().skip(1) {
            let name = parent.to_string_lossy().trim_start_matches('/').to_owned();
            if !name.is_empty() {
                directories.insert(name);
            }
        }
    }
    for name in &directories {
        archive.directory(name);
    }
    for library in libraries(mayfly) {
        archive.file(library.to_string_lossy().trim_start_matches('/'), &read(&library)?);
    }
    for module in MODULES {
        let path = kernel.directory.join("modules").join(module).with_extension("ko");
        if path.exists() {
            archive.file(&format!("modules/{module}.ko"), &read(&path)?);
        }
    }
    Ok(archive.finish())
}

/// The output of a job on the serial line.
#[derive(Debug)]
pub(crate) struct Said {
    /// The job's document.
    pub(crate) left: Option<Left>,
    /// Its messages and its exit, if it failed.
    pub(crate) wrong: Option<String>,
}

/// A job's document.
#[derive(Debug, PartialEq)]
pub(crate) enum Left {
    Record(Box<Record>),
    Examination(Box<Document>),
    Laws(Box<mayfly_laws::Document>),
}

impl Left {
    fn parse(job: &Job, text: &[u8]) -> anyhow::Result<Self> {
        Ok(match job.command {
            Command::Run => Self::Record(Box::new(Record::parse(text, Path::new("its record"))?)),
            Command::Doctor => {
                let document = serde_json::from_slice(text).context("it is no examination")?;
                Self::Examination(Box::new(document))
            }
            Command::Laws => {
                let document = serde_json::from_slice(text).context("it has no laws")?;
                Self::Laws(Box::new(document))
            }
        })
    }

    /// As it is kept.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Record(record) => record.to_json(),
            Self::Examination(document) => document.to_json(),
            Self::Laws(document) => document.to_json(),
        }
    }
}

/// Finds a job's document in the output of the serial line.
pub(crate) fn said(job: &Job, serial: &str) -> Said {
    let left = match part(serial, &format!("{BEGIN}{}", job.name), &format!("{END}{}", job.name)) {
        None => Err("it did not end".to_owned()),
        Some(lines) if lines.is_empty() => Ok(None),
        Some(lines) => unpacked(&lines)
            .and_then(|text| Left::parse(job, &text))
            .map(Some)
            .map_err(|error| format!("{error:#}")),
    };
    let code = format!("=== exit code of {}: ", job.name);
    let code = serial.lines().find_map(|line| line.trim_end().strip_prefix(&code));
    let begins = format!("=== begins {}", job.name);
    let log = part(serial, &begins, "=== ").unwrap_or_default();
    let last = log.iter().rev().find(|line| line.starts_with("mayfly: ")).map_or("", |line| line);
    let wrong = match (&left, code) {
        (Err(why), _) => Some(why.clone()),
        (Ok(_), Some("0")) => None,
        (Ok(_), code) => Some(format!("exit code {}: {last}", code.unwrap_or("none"))),
    };
    Said { left: left.ok().flatten(), wrong }
}

/// The lines between two that begin so.
fn part<'a>(serial: &'a str, begin: &str, end: &str) -> Option<Vec<&'a str>> {
    let mut lines = serial.lines().map(str::trim_end);
    lines.find(|line| *line == begin)?;
    let mut part = Vec::new();
    for line in lines {
        if line.starts_with(end) {
            return Some(part);
        }
        part.push(line);
    }
    None
}

/// Decodes the output of `gzip` and `xxd -p`.
fn unpacked(lines: &[&str]) -> anyhow::Result<Vec<u8>> {
    let digits: String = lines.concat();
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        bail!("its record is incomplete");
    }
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16);
    let packed = (0..digits.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>();
    let packed = packed.context("its record was written over")?;
    let mut text = Vec::new();
    GzDecoder::new(&packed[..])
        .take(MOST)
        .read_to_end(&mut text)
        .context("its record was written over")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use mayfly_record::{Backend, Host, ResultRow};

    use super::*;

    const JOB: Job = Job { name: "all", command: Command::Run, arguments: "teardown" };

    fn printed(left: &Left) -> String {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(left.to_json().as_bytes()).unwrap();
        let digits: Vec<String> =
            packed.finish().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        digits.chunks(30).map(|line| line.concat() + "\r\n").collect()
    }

    fn record() -> Left {
        let row = ResultRow::new("teardown", Backend::Kvm, "kernel");
        Left::Record(Box::new(Record::new(Host::default(), vec![row])))
    }

    fn serial(code: &str, record: &str) -> String {
        format!(
            "noise\r\n=== begins all\r\nmayfly: something\r\n=== exit code of all: {code}\r\n\
             === record of all\r\n{record}=== end of all\r\n"
        )
    }

    #[test]
    fn a_record_comes_back_from_the_serial_line() {
        let said = said(&JOB, &serial("0", &printed(&record())));
        assert_eq!(said.left, Some(record()));
        assert_eq!(said.wrong, None);
        // A record is no examination.
        let doctor = Job { command: Command::Doctor, ..JOB };
        let said = super::said(&doctor, &serial("0", &printed(&record())));
        assert!(said.left.is_none() && said.wrong.unwrap().contains("no examination"));
    }

    #[test]
    fn a_job_that_failed_says_with_what_and_keeps_what_it_has() {
        let with = said(&JOB, &serial("1", &printed(&record())));
        assert!(with.left.is_some());
        assert_eq!(with.wrong.as_deref(), Some("exit code 1: mayfly: something"));
        let without = said(&JOB, &serial("3", ""));
        assert!(without.left.is_none());
        assert!(without.wrong.unwrap().starts_with("exit code 3"));
    }

    #[test]
    fn a_record_that_is_cut_off_or_written_over_is_none() {
        let whole = serial("0", &printed(&record()));
        for at in 0..whole.trim_end().len() {
            if let Some(cut) = whole.get(..at) {
                assert!(said(&JOB, cut).left.is_none(), "{at}");
                assert!(said(&JOB, cut).wrong.is_some(), "{at}");
            }
        }
        let over =
            printed(&record()).replacen("\r\n", "\r\n[   1.0] a line of the kernel's\r\n", 1);
        assert!(said(&JOB, &serial("0", &over)).wrong.is_some());
        assert!(said(&JOB, &serial("0", "1f8b08\r\n")).wrong.is_some());
    }

    #[test]
    fn a_program_has_the_libraries_that_ldd_names_and_a_static_one_has_none() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)\n\t\
                      /lib64/ld-linux-x86-64.so.2 (0x2)\n";
        let paths = paths(listed);
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths, expected.map(PathBuf::from));
        assert_eq!(super::paths("\tstatically linked\n"), Vec::<PathBuf>::new());
        assert_eq!(libraries(Path::new("/nowhere")), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_script_ends_the_machine_after_all_jobs() {
        let other = Job { name: "other", command: Command::Doctor, arguments: "--quiet" };
        let jobs = [JOB, other];
        let script = script(&jobs);
        assert!(script.starts_with("#!/bin/busybox sh\n"));
        assert!(script.ends_with("poweroff -f\n"));
        let places: Vec<_> =
            ["=== begins all", "/mayfly run --backend kvm ", "=== begins other", "/mayfly doctor "]
                .map(|text| script.find(text).unwrap())
                .into();
        assert!(places.is_sorted());
    }
}
