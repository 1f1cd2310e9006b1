//! The machines that are emulated.

use std::path::Path;
use std::process::Command;

use crate::archive::Arch;
use crate::job::Look;

/// A machine with one processor that can run guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// x86-64 with SVM and nested paging, on which KVM has its TDP MMU.
    Amd64,
    /// arm64 as a Neoverse N1: guests decide whether their accesses go through the caches.
    Arm64,
    /// arm64 with every feature that QEMU has, `FEAT_S2FWB` included: stage 2 forces guests' accesses through the caches.
    Arm64Fwb,
}

impl Machine {
    /// The machines of an architecture. Only where guests run for long, it matters how they reach the caches.
    pub(crate) fn of(arch: Arch, look: Look) -> Vec<Self> {
        match (arch, look) {
            (Arch::Amd64, _) => vec![Self::Amd64],
            (Arch::Arm64, Look::Quick | Look::Laws) => vec![Self::Arm64],
            (Arch::Arm64, Look::Whole) => vec![Self::Arm64, Self::Arm64Fwb],
        }
    }

    pub(crate) const fn arch(self) -> Arch {
        match self {
            Self::Amd64 => Arch::Amd64,
            Self::Arm64 | Self::Arm64Fwb => Arch::Arm64,
        }
    }

    /// Its name in tables and files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Arm64Fwb => "arm64-fwb",
        }
    }

    /// QEMU, which boots this kernel with these files and writes the serial line to a file: a pipe would lose its end when
    /// QEMU is killed.
    ///
    /// Each instruction takes 2 ns by the machine's clock. While the processor is idle, the clock goes on to the next timer at
    /// once. So the figures are the same on any host, under any load.
    pub(crate) fn qemu(self, kernel: &Path, initial_files: &Path, serial: &Path) -> Command {
        let (program, machine, processor, console) = match self {
            // Without these two options the kernel does not trust a clock that counts instructions, and takes a worse one.
            Self::Amd64 => {
                ("qemu-system-x86_64", "q35", "EPYC", "console=ttyS0 tsc=reliable no_timer_check")
            }
            Self::Arm64 => (
                "qemu-system-aarch64",
                "virt,virtualization=on,gic-version=3",
                "neoverse-n1",
                "console=ttyAMA0",
            ),
            // Kernels before 5.12 do not boot where addresses may have 52 bits. Pointers are signed by a quick algorithm.
            Self::Arm64Fwb => (
                "qemu-system-aarch64",
                "virt,virtualization=on,gic-version=3",
                "max,pauth-impdef=on,lpa2=off,sve=off",
                "console=ttyAMA0",
            ),
        };
        // The kernel ends QEMU when its parent ends, for whatever reason.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program, "-M", machine, "-cpu", processor]);
        command.args(["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off"]);
        command.args(["-smp", "1", "-m", "1G", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(joined("file:", serial));
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(initial_files);
        command.arg("-append");
        command.arg(format!("{console} quiet loglevel=1 panic=-1 mitigations=off"));
        command
    }
}

/// An option of QEMU whose value is a path. A comma would end the value, so it is doubled.
fn joined(before: &str, path: &Path) -> String {
    format!("{before}{}", path.display().to_string().replace(',', ",,"))
}
