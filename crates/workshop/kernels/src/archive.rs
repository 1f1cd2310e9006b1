//! The kernels that `scripts/kernels/fetch` fetches.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;

/// The script that fetches them. It says on standard error what it does, and which kernels cannot be fetched.
const FETCH: &str = "scripts/kernels/fetch";

/// The suites that `--quick` reads: stable and its backports, a tenth of all package lists.
const FEW_SUITES: [&str; 2] = ["--suites", "stable stable-backports"];

/// An architecture, as Debian names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The statically linked target, as rustc names it.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }
}

/// The series of a kernel, such as 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Series {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// A kernel that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) series: Series,
    /// The output of `uname -r` in it.
    pub(crate) version: String,
    /// The directory of `vmlinuz` and `modules/`. `busybox` is in the directory above it.
    pub(crate) directory: PathBuf,
}

impl Kernel {
    /// A line of what [`FETCH`] prints.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        Some(Self {
            series: Series::parse(words.next()?)?,
            version: words.next()?.to_owned(),
            directory: words.next()?.into(),
        })
    }
}

/// The kernels of these series, or of all if none is named. The list is empty if none can be fetched.
pub(crate) fn fetch(arch: Arch, releases: &[String]) -> anyhow::Result<Vec<Kernel>> {
    let mut args = vec![arch.name()];
    args.extend(releases.iter().map(String::as_str));
    let kernels = lines(&args)?;
    kernels
        .iter()
        .map(|line| Kernel::parse(line).with_context(|| format!("{FETCH} said '{line}'")))
        .collect()
}

/// The newest kernel before a series, and the newest since. The list is empty if one of them cannot be fetched. Kernels that
/// were fetched once are not fetched again.
pub(crate) fn before_and_since(arch: Arch, since: Series) -> anyhow::Result<Vec<Kernel>> {
    let mut args = FEW_SUITES.to_vec();
    args.extend(["--list", arch.name()]);
    let available: Vec<_> = lines(&args)?
        .iter()
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .filter_map(|name| Some((Series::parse(&name)?, name)))
        .collect();
    let (old, new): (Vec<_>, Vec<_>) =
        available.into_iter().partition(|(series, _)| *series < since);
    // Of what KVM needs, the archive has kept all for the newest.
    let newest = |of: Vec<(Series, String)>| of.into_iter().max().map(|(_, name)| name);
    let (Some(old), Some(new)) = (newest(old), newest(new)) else { return Ok(Vec::new()) };
    let mut args = FEW_SUITES.to_vec();
    args.extend(["--kept", arch.name(), &old, &new]);
    let kernels: Vec<_> = lines(&args)?.iter().filter_map(|line| Kernel::parse(line)).collect();
    Ok(if kernels.len() == 2 { kernels } else { Vec::new() })
}

/// The output of [`FETCH`] with these arguments; empty if it has no kernel.
fn lines(args: &[&str]) -> anyhow::Result<Vec<String>> {
    let fetched = Command::new(FETCH)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{FETCH} cannot be run: it is run where the sources are"))?;
    match fetched.status.code() {
        Some(0) => {}
        Some(77) => return Ok(Vec::new()),
        _ => bail!("{FETCH} {} failed: {}", args.join(" "), fetched.status),
    }
    let text = String::from_utf8(fetched.stdout)?;
    ensure!(!text.is_empty(), "{FETCH} {} printed nothing", args.join(" "));
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_ordered_by_number_and_not_by_letter() {
        let series = |text| Series::parse(text).unwrap();
        assert!(series("6.9") < series("6.12"));
        assert!(series("6.19") < series("7.0"));
        for text in ["", "6", "6.", ".1", "6.1.2", "six.1", "6.1 "] {
            assert_eq!(Series::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_names_a_kernel_and_a_directory_that_may_have_blanks() {
        let kernel = Kernel::parse("6.12 6.12.107+deb13-cloud-arm64 /some where/6.12").unwrap();
        assert_eq!(kernel.series, Series { major: 6, minor: 12 });
        assert_eq!(kernel.version, "6.12.107+deb13-cloud-arm64");
        assert_eq!(kernel.directory, PathBuf::from("/some where/6.12"));
        assert_eq!(Kernel::parse("6.12 6.12.107"), None);
        assert_eq!(Kernel::parse(""), None);
    }
}
