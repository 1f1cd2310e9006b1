//! The VMs that a loader gives: one module, which is a cpio archive. It has kernels, ramdisks, and a file that lists the VMs.
//!
//! A line of the list is a VM. It has the VM's own parameters ([`Plan::set`](crate::plan::Plan::set)), and the names of its files:
//! `kernel=FILE` and `initrd=FILE`, once for each ramdisk. Behind `--` are the arguments of its kernel. A line that is empty, or
//! begins with `#`, is none. A file may be of several VMs.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str;

use mayfly_x86::boot::archive;

use crate::board::{Module, ModuleKind, Region};

/// The file that lists the VMs.
pub const LIST: &str = "vms";

/// The most bytes of a list.
const MOST: usize = 64 << 10;

/// The modules of the VMs that the list in `archive` has, which lies at the address `at`; and what is wrong with others.
pub fn modules(archive: &[u8], at: u64) -> (Vec<Module>, Vec<String>) {
    if archive.is_empty() {
        let why = "the loader gives no archive of VMs (QEMU: -initrd, a cpio archive)";
        return (Vec::new(), Vec::from([why.to_string()]));
    }
    let (modules, mut wrong) = listed(archive, at);
    // What is missing may be behind its end.
    if !wrong.is_empty() && !archive::is_whole(archive) {
        wrong.push(
            "the archive that the loader gives has no end: it was cut, or is no cpio archive (newc)"
                .to_string(),
        );
    }
    (modules, wrong)
}

/// The same, of an archive that may have been cut.
fn listed(archive: &[u8], at: u64) -> (Vec<Module>, Vec<String>) {
    let wrong = |why: String| (Vec::new(), Vec::from([why]));
    let Some(list) = archive::find(archive, LIST) else {
        return wrong(format!("there is no file \"{LIST}\" in the archive that the loader gives"));
    };
    let Some(list) = str::from_utf8(list).ok().filter(|list| list.len() <= MOST) else {
        return wrong(format!("the file \"{LIST}\" is no text of at most {MOST} bytes"));
    };
    let (mut modules, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(list.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match of_line(line, archive, at) {
            Ok(its) => modules.extend(its),
            Err(why) => wrong.push(format!("line {number} of the file \"{LIST}\": {why}")),
        }
    }
    if modules.is_empty() && wrong.is_empty() {
        wrong.push(format!("the file \"{LIST}\" lists no VM"));
    }
    (modules, wrong)
}

/// The modules of the VM of a line: its kernel, and its ramdisks.
fn of_line(line: &str, archive: &[u8], at: u64) -> Result<Vec<Module>, String> {
    let (words, arguments) = match line.split_once("--") {
        Some((words, arguments)) => (words, arguments),
        None => (line, ""),
    };
    let file = |name: &str| -> Result<Region, String> {
        let contents = archive::find(archive, name);
        let contents =
            contents.ok_or_else(|| format!("there is no file {name:?} in the archive"))?;
        // It lies in the archive.
        let start = at + (contents.as_ptr().addr() - archive.as_ptr().addr()) as u64;
        Ok(start..start + contents.len() as u64)
    };
    let (mut kernel, mut ramdisks, mut own) = (None, Vec::new(), String::new());
    for word in words.split_ascii_whitespace() {
        match word.split_once('=') {
            Some(("kernel", _)) if kernel.is_some() => return Err("it has two kernels".to_string()),
            Some(("kernel", name)) => kernel = Some(file(name)?),
            Some(("initrd", name)) => ramdisks.push(file(name)?),
            _ => {
                own.push_str(word);
                own.push(' ');
            }
        }
    }
    let region = kernel.ok_or("it has no kernel=")?;
    let arguments = format!("{own}-- {}", arguments.trim());
    let mut modules = Vec::from([Module { region, kind: ModuleKind::Kernel, arguments }]);
    modules.extend(ramdisks.into_iter().map(|region| Module {
        region,
        kind: ModuleKind::Ramdisk,
        arguments: String::new(),
    }));
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::Plan;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, contents) in files.iter().chain(&[("TRAILER!!!", &b""[..])]) {
            bytes.extend_from_slice(b"070701");
            for index in 0..13 {
                let value = match index {
                    6 => contents.len(),
                    11 => name.len() + 1,
                    _ => 0,
                };
                bytes.extend_from_slice(format!("{value:08X}").as_bytes());
            }
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend_from_slice(contents);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    const AT: u64 = 0x100_0000;

    fn of(list: &str) -> (Vec<Module>, Vec<String>) {
        modules(
            &archive(&[
                ("k", b"kernel"),
                ("r", b"one"),
                ("s", b"another"),
                (LIST, list.as_bytes()),
            ]),
            AT,
        )
    }

    #[test]
    fn each_line_is_a_vm_with_its_files() {
        let (modules, wrong) = of(
            "# two VMs\n\nname=a vcpus=2 kernel=k initrd=r initrd=s -- quiet -- x\n kernel=k name=b memory=64M\n",
        );
        assert_eq!(wrong, Vec::<String>::new());
        let (plans, wrong) = Plan::all(&modules);
        assert_eq!(wrong, Vec::<String>::new());
        let [a, b] = &plans[..] else { panic!("{plans:?}") };
        assert_eq!((a.name.as_str(), a.vcpus, a.arguments.as_str()), ("a", 2, "quiet -- x"));
        assert_eq!((b.name.as_str(), b.memory, b.arguments.as_str()), ("b", 64 << 20, ""));
        let size = |region: &Region| region.end - region.start;
        assert_eq!(a.ramdisks.iter().map(size).collect::<Vec<_>>(), [3, 7]);
        assert_eq!((size(&a.kernel), &a.kernel, b.ramdisks.len()), (6, &b.kernel, 0));
        assert!(a.kernel.start > AT);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_the_others_are_there() {
        let (modules, wrong) =
            of("name=a\nkernel=x\nkernel=k kernel=k\nkernel=k initrd=y\nkernel=k name=b");
        assert_eq!(modules.len(), 1);
        assert_eq!(
            wrong,
            [
                "line 1 of the file \"vms\": it has no kernel=",
                "line 2 of the file \"vms\": there is no file \"x\" in the archive",
                "line 3 of the file \"vms\": it has two kernels",
                "line 4 of the file \"vms\": there is no file \"y\" in the archive",
            ]
        );
        let why = |archive: &[u8]| super::modules(archive, AT).1.remove(0);
        assert!(why(&[]).starts_with("the loader gives no archive"));
        assert!(why(&archive(&[])).starts_with("there is no file \"vms\""));
        assert!(why(&archive(&[(LIST, b"\xff")])).ends_with("is no text of at most 65536 bytes"));
        assert!(why(&archive(&[(LIST, b"# none")])).ends_with("lists no VM"));
    }

    #[test]
    fn an_archive_that_was_cut_or_is_none_is_said_to_be_so() {
        let whole = archive(&[(LIST, b"kernel=k"), ("k", b"kernel")]);
        let (modules, wrong) = super::modules(&whole[..whole.len() - 130], AT);
        assert_eq!((modules.len(), wrong.len()), (0, 2));
        assert!(wrong[0].contains("there is no file \"k\"") && wrong[1].contains("it was cut"));
        let (_, wrong) = super::modules(b"\x1f\x8b, compressed", AT);
        assert!(wrong[0].contains("\"vms\"") && wrong[1].contains("is no cpio archive"));
        assert_eq!(super::modules(&archive(&[]), AT).1.len(), 1);
    }

    proptest! {
        #[test]
        fn no_list_is_too_bad(list in "[a-z=# \\-\n]{0,80}", cut in 0_usize..600) {
            let mut bytes = archive(&[("k", b"kernel"), (LIST, list.as_bytes())]);
            bytes.truncate(cut);
            let (modules, _) = modules(&bytes, AT);
            for module in modules {
                prop_assert!(module.region.start >= AT && module.region.end <= AT + bytes.len() as u64);
            }
        }
    }
}
