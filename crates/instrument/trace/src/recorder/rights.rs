//! What a file of a program says of how it can be followed, and of what it loses by that.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Where a command is found, as a shell finds it.
pub(super) fn found(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|file| {
        fs::metadata(file)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// A warning about a program that would get rights when it is executed, and gets none under a tracer without root.
pub(super) fn lost_by(program: &Path) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let mode = fs::metadata(program).ok()?.permissions().mode();
    let mut value = [0; 32];
    let capable = rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok();
    let what = match mode {
        _ if mode & 0o4000 != 0 => "is set-user-ID",
        _ if mode & 0o2000 != 0 => "is set-group-ID",
        _ if capable => "has capabilities",
        _ => return None,
    };
    Some(format!(
        "{} {what}: without root, mayfly trace runs it without these rights",
        program.display()
    ))
}

/// Whether a file is a program of 32 bits.
pub(super) fn is_32_bit(program: &Path) -> bool {
    let mut head = [0; 5];
    let read = fs::File::open(program).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"\x7fELF\x01"
}
