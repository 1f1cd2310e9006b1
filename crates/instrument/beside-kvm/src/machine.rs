//! The machine that is made up, and what it is started with.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use mayfly_lifecycle_steps::Architecture;

/// Processors of QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// All that QEMU can do: Linux runs at EL2, and stage 2 forces write-back. Without that, as on the others, guests may
    /// go past the caches.
    Max,
    /// Neoverse N1: Linux runs at EL2, with the virtualization host extensions.
    NeoverseN1,
    /// Cortex-A72: Linux runs at EL1, and KVM has a part of its own at EL2.
    CortexA72,
    /// AMD's EPYC: SVM with nested paging, as far as TCG has it.
    Epyc,
}

impl Processor {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Max, Self::NeoverseN1, Self::CortexA72, Self::Epyc];

    /// Its architecture.
    pub const fn architecture(self) -> Architecture {
        match self {
            Self::Max | Self::NeoverseN1 | Self::CortexA72 => Architecture::Arm64,
            Self::Epyc => Architecture::X86,
        }
    }

    /// As QEMU names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::NeoverseN1 => "neoverse-n1",
            Self::CortexA72 => "cortex-a72",
            Self::Epyc => "EPYC",
        }
    }

    /// QEMU's option for it. The algorithm that signs pointers on `max` by default takes an emulator most of its time,
    /// and no instructions.
    const fn option(self) -> &'static str {
        match self {
            Self::Max => "max,pauth-impdef=on",
            Self::Epyc => "EPYC,+svm,+npt",
            _ => self.name(),
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Processor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|processor| processor.name() == text);
        found.ok_or("accepted are max, neoverse-n1, cortex-a72, EPYC")
    }
}

/// What is booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Mayfly, as a boot loader takes it.
    pub(crate) image: PathBuf,
    /// A Linux with KVM.
    pub(crate) kernel: PathBuf,
    /// A static busybox for it.
    pub(crate) busybox: PathBuf,
    /// A static `mayfly` for it.
    pub(crate) mayfly: PathBuf,
    /// Modules of its KVM, in the order in which they are loaded; none where it is built in.
    pub(crate) modules: Vec<PathBuf>,
    /// The version of the QEMU that boots them.
    pub(crate) qemu: String,
}

/// Something that has to be there first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(String);

impl Missing {
    pub(crate) const fn new(what: String) -> Self {
        Self(what)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// QEMU's program for an architecture, Debian's package of it, and the command that installs it.
const fn program(architecture: Architecture) -> (&'static str, &'static str, &'static str) {
    match architecture {
        Architecture::Arm64 => ("qemu-system-aarch64", "qemu-system-arm", "make metal-run"),
        Architecture::X86 => {
            ("qemu-system-x86_64", "qemu-system-x86", "make metal-run ARCH=x86_64")
        }
    }
}

impl Files {
    /// Those of an architecture in a directory, as `make metal-run` puts them there.
    ///
    /// # Errors
    ///
    /// [`Missing`] names what is not there, and says how it comes there.
    pub fn of(directory: &Path, architecture: Architecture) -> Result<Self, Missing> {
        let (qemu, package, make) = program(architecture);
        let version = Command::new(qemu).arg("--version").stdin(Stdio::null()).output();
        let Some(version) = version.ok().filter(|version| version.status.success()) else {
            let how = format!("{make} installs it, where apt-get is; Debian calls it {package}");
            return Err(Missing(format!("there is no {qemu} here (7.2 or newer): {how}")));
        };
        let file = |name: &str| {
            let path = match architecture {
                Architecture::Arm64 => directory.join(name),
                Architecture::X86 => directory.join("x86_64").join(name),
            };
            if path.is_file() {
                return Ok(path);
            }
            let how = format!("{make} builds and fetches what is booted");
            Err(Missing(format!("there is no {}: {how}", path.display())))
        };
        let modules: &[&str] = match architecture {
            Architecture::Arm64 => &[],
            Architecture::X86 => &["irqbypass.ko", "kvm.ko", "kvm-amd.ko"],
        };
        Ok(Self {
            image: file("mayfly.bin")?,
            kernel: file("vmlinuz")?,
            busybox: file("busybox")?,
            mayfly: file("mayfly")?,
            modules: modules.iter().map(|module| file(module)).collect::<Result<_, _>>()?,
            qemu: version_in(&String::from_utf8_lossy(&version.stdout)),
        })
    }
}

/// The version in what QEMU says of itself: `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn version_in(said: &str) -> String {
    let line = said.lines().next().unwrap_or_default().trim();
    line.strip_prefix("QEMU emulator version ").unwrap_or(line).to_owned()
}

/// QEMU with one processor whose clock is the count of its instructions, and what is booted on it. Its serial line is
/// written to a file: of a pipe, the end is lost where it is killed.
pub(crate) fn qemu(processor: Processor, serial: &Path, boots: &[(&str, OsString)]) -> Command {
    // Of the parent's end it hears by the kernel, however that comes.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program(processor.architecture()).0]);
    let machine = match processor.architecture() {
        Architecture::Arm64 => "virt,virtualization=on,gic-version=3",
        Architecture::X86 => "q35",
    };
    command.args(["-M", machine, "-cpu", processor.option()]);
    command.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]);
    command.args(["-smp", "1", "-m", "1G", "-nodefaults", "-display", "none", "-no-reboot"]);
    let mut file = OsString::from("file:");
    // A comma ends an option of QEMU's, unless there are two.
    file.push(serial.display().to_string().replace(',', ",,"));
    command.arg("-serial").arg(file);
    if processor.architecture() == Architecture::X86 {
        // By this device Mayfly powers the machine off.
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    }
    for (option, value) in boots {
        command.arg(option).arg(value);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_known_by_the_names_that_qemu_has() {
        for processor in Processor::ALL {
            assert_eq!(processor.to_string().parse(), Ok(processor));
        }
        assert!("cortex-a53".parse::<Processor>().is_err());
    }

    #[test]
    fn the_version_is_what_qemu_says_without_what_all_of_them_say() {
        let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright (c) 2003-2022\n";
        assert_eq!(version_in(said), "7.2.22 (Debian 1:7.2+dfsg-7)");
        assert_eq!(version_in("another"), "another");
        assert_eq!(version_in(""), "");
    }

    #[test]
    fn one_processor_counts_its_instructions_whatever_is_booted() {
        let boots = [("-kernel", OsString::from("/a,b"))];
        let command = qemu(Processor::CortexA72, Path::new("/tmp/a,b"), &boots);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let has = |option: &str, value: &str| words.windows(2).any(|two| two == [option, value]);
        assert!(has("-cpu", "cortex-a72") && has("-smp", "1"));
        assert!(has("-icount", "shift=0,sleep=off"));
        assert!(has("-serial", "file:/tmp/a,,b"), "{words:?}");
        assert!(has("-kernel", "/a,b"));
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_brings_it() {
        for (architecture, make) in
            Architecture::ALL.into_iter().zip(["make metal-run ", "make metal-run ARCH=x86_64 "])
        {
            let Missing(why) = Files::of(Path::new("/nowhere"), architecture).unwrap_err();
            assert!(why.contains(make), "{why}");
            assert!(!why.contains('\n'));
        }
    }
}
