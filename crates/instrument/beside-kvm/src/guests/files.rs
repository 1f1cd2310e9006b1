//! What is booted beside what lifecycles need: drivers, and the VMM with its libraries.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use mayfly_lifecycle_steps::Architecture;
use mayfly_qemu::Archive;

use crate::machine::{Files, Missing};
use crate::run::read;

/// Drivers of a guest's devices that Debian's kernel has as modules.
const OF_GUESTS: [&str; 6] =
    ["failover", "net_failover", "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console"];
/// Drivers of the host's that carry packets between guests, in the order in which they need each other.
pub(super) const OF_HOST: [&str; 8] =
    ["tun", "tap", "vhost_iotlb", "vhost", "vhost_net", "llc", "stp", "bridge"];

/// The VMM's program, and the loader of its libraries.
pub(super) const VMM: &str = "qemu-system-aarch64";
const LOADER: &str = "ld-linux-aarch64.so.1";

/// The program of a guest.
const TRAFFIC: &str = "mayfly-traffic";

/// What is booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFiles {
    pub(super) files: Files,
    /// Drivers, as `NAME.ko`.
    modules: PathBuf,
    /// The VMM and its libraries.
    vmm: PathBuf,
    /// What guests do, as a program.
    traffic: PathBuf,
    /// The VMM's version, as its distribution names it.
    pub(super) version: String,
}

impl GuestFiles {
    /// Those in a directory, as `make metal-run ARGS=devices` puts them there.
    ///
    /// # Errors
    ///
    /// [`Missing`] names what is not there, and says how it comes there.
    pub fn of(directory: &Path) -> Result<Self, Missing> {
        let files = Files::of(directory, Architecture::Arm64)?;
        let (modules, vmm) = (directory.join("modules"), directory.join("vmm"));
        let needed = OF_HOST.iter().map(|name| modules.join(format!("{name}.ko")));
        let traffic = directory.join(TRAFFIC);
        let needed =
            needed.chain([vmm.join(VMM), vmm.join(LOADER), vmm.join("version"), traffic.clone()]);
        for path in needed {
            if !path.is_file() {
                let how = "make metal-run ARGS=devices fetches what is booted";
                return Err(Missing::new(format!("there is no {}: {how}", path.display())));
            }
        }
        let version = fs::read_to_string(vmm.join("version")).unwrap_or_default().trim().to_owned();
        Ok(Self { files, modules, vmm, traffic, version })
    }

    /// The initial files of a guest.
    pub(super) fn of_guest(&self) -> anyhow::Result<Vec<u8>> {
        let mut archive = Archive::default();
        for directory in ["bin", "dev", "lib", "proc", "sys"] {
            archive.directory(directory);
        }
        archive.file("init", include_bytes!("init"));
        archive.file("bin/busybox", &read(&self.files.busybox)?);
        archive.file(&format!("bin/{TRAFFIC}"), &read(&self.traffic)?);
        // Some kernels have some of them built in.
        self.add_modules(&mut archive, &OF_GUESTS, Path::is_file)?;
        Ok(archive.finish())
    }

    /// The initial files of a Linux whose first process does what `init` says, with what its VMM boots.
    pub(super) fn of_host(&self, init: &str) -> anyhow::Result<Vec<u8>> {
        const LIBRARIES: &str = "usr/lib/aarch64-linux-gnu";
        let mut archive = Archive::default();
        let plain =
            ["bin", "dev", "lib", "proc", "sys", "tmp", "usr", "usr/bin", "usr/lib", LIBRARIES];
        for directory in plain {
            archive.directory(directory);
        }
        archive.file("init", init.as_bytes());
        archive.file("bin/busybox", &read(&self.files.busybox)?);
        archive.file("mayfly", &read(&self.files.mayfly)?);
        archive.file("Image", &read(&self.files.kernel)?);
        archive.file("guest", &self.of_guest()?);
        self.add_modules(&mut archive, &OF_HOST, |_| true)?;
        let listed = fs::read_dir(&self.vmm);
        let listed = listed.with_context(|| format!("cannot list {}", self.vmm.display()))?;
        let mut paths = listed.map(|each| Ok(each?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        paths.sort();
        for path in &paths {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let into = match &*name {
                VMM => "usr/bin",
                LOADER => "lib",
                name if name.contains(".so") => LIBRARIES,
                _ => continue,
            };
            archive.file(&format!("{into}/{name}"), &read(path)?);
        }
        Ok(archive.finish())
    }

    fn add_modules(
        &self,
        archive: &mut Archive,
        names: &[&str],
        is_wanted: impl Fn(&Path) -> bool,
    ) -> anyhow::Result<()> {
        for name in names {
            let path = self.modules.join(format!("{name}.ko"));
            if is_wanted(&path) {
                archive.file(&format!("lib/{name}.ko"), &read(&path)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_loads_the_drivers_that_it_has() {
        let init = include_str!("init");
        let line = init.lines().find(|line| line.starts_with("for module in ")).unwrap();
        assert_eq!(line, format!("for module in {}; do", OF_GUESTS.join(" ")));
    }
}
