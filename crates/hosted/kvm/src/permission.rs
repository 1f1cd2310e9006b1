//! Why a device may not be opened, and what helps.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid, getgroups};

/// Reading and writing.
const RW: u32 = 0o6;

/// The owner and the mode of a file, and the user that asks.
struct Access<'a> {
    path: &'a Path,
    mode: u32,
    owner: u32,
    /// The group's name, or its number where it has none.
    group: String,
    /// Whether the process is its owner, and whether it is in its group.
    is_owner: bool,
    is_member: bool,
}

/// What helps a user that was refused at `path`, in a few words.
pub(crate) fn what_helps(path: &Path) -> String {
    let Ok(of) = fs::metadata(path) else {
        return "its directory cannot be looked into".to_owned();
    };
    let groups = getgroups().unwrap_or_default();
    let is_member = groups.into_iter().chain([getegid()]).any(|group| group.as_raw() == of.gid());
    let names = fs::read_to_string("/etc/group").unwrap_or_default();
    let is_owner = geteuid().as_raw() == of.uid();
    let group = name(&names, of.gid()).unwrap_or_else(|| of.gid().to_string());
    Access { path, mode: of.mode(), owner: of.uid(), group, is_owner, is_member }.what_helps()
}

impl Access<'_> {
    fn what_helps(&self) -> String {
        let Self { path, mode, owner, group, .. } = self;
        let (path, mode) = (path.display(), mode & 0o777);
        let class = match (self.is_owner, self.is_member) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        if mode >> class & RW == RW {
            return format!(
                "its mode ({mode:03o}) allows it, so something else forbids it: the rules of a container (--device={path}) or a \
                 security module"
            );
        }
        if mode >> 3 & RW == RW && !self.is_member {
            return format!(
                "it is for members of the group {group} (mode {mode:03o}): sudo usermod -aG {group} $USER, then log in again"
            );
        }
        let owner = if *owner == 0 { "root".to_owned() } else { format!("user {owner}") };
        format!(
            "it is for {owner} alone (mode {mode:03o}, group {group}): sudo chmod 660 {path} gives it to that group"
        )
    }
}

/// The name of a group, as in `group(5)`.
fn name(groups: &str, gid: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helps(mode: u32, is_owner: bool, is_member: bool) -> String {
        let (path, group) = (Path::new("/dev/kvm"), "kvm".to_owned());
        Access { path, mode, owner: 0, group, is_owner, is_member }.what_helps()
    }

    #[test]
    fn who_is_not_in_the_group_is_told_which_and_how_to_get_there() {
        assert_eq!(
            helps(0o20660, false, false),
            "it is for members of the group kvm (mode 660): sudo usermod -aG kvm $USER, then log in again"
        );
    }

    #[test]
    fn what_is_roots_alone_is_said_to_be_and_no_group_would_help() {
        for mode in [0o600, 0o640, 0o000] {
            let helps = helps(mode, false, false);
            assert!(helps.starts_with("it is for root alone (mode ") && !helps.contains("usermod"));
            assert!(helps.contains("sudo chmod 660 /dev/kvm"), "{helps}");
        }
        assert!(helps(0o600, false, true).starts_with("it is for root alone"), "a member of it");
    }

    #[test]
    fn where_the_mode_allows_it_something_else_is_named() {
        for (mode, is_owner, is_member) in
            [(0o666, false, false), (0o660, false, true), (0o600, true, false)]
        {
            assert!(helps(mode, is_owner, is_member).contains("container"), "{mode:o}");
        }
    }

    #[test]
    fn a_group_is_called_by_its_name() {
        let groups = "root:x:0:\nkvm:x:108:libvirt-qemu,alice\nbad line\n";
        assert_eq!(name(groups, 108).as_deref(), Some("kvm"));
        assert_eq!(name(groups, 107), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_no_panic() {
        assert!(what_helps(Path::new("/nonexistent/kvm")).contains("looked into"));
    }
}
