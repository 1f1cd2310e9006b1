//! What a VM is called: its VMM's command line says so, in one of the ways that VMMs have.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How much of a command line is read. A process may make its own as long as it likes.
const LONGEST_LINE: u64 = 1 << 16;
/// Characters of a name that are kept.
const LONGEST_NAME: usize = 128;

/// Options whose value names the VM, the best first: `-name` and `--name` (QEMU, kvmtool, crosvm), `--id` (Firecracker), and
/// the socket on which the VMM takes requests (Firecracker, Cloud Hypervisor, crosvm).
const OPTIONS: [&str; 5] = ["name", "id", "api-sock", "api-socket", "socket"];

/// What the process in this directory of `/proc` calls its VM; none where nothing says so, or this user may not know.
pub(crate) fn name(process: &Path) -> Option<String> {
    let mut line = Vec::new();
    File::open(process.join("cmdline")).ok()?.take(LONGEST_LINE).read_to_end(&mut line).ok()?;
    let line = String::from_utf8_lossy(&line);
    // The first is the program.
    of_arguments(&line.split('\0').skip(1).collect::<Vec<_>>())
}

fn of_arguments(arguments: &[&str]) -> Option<String> {
    OPTIONS.into_iter().find_map(|option| {
        let name = of_list(value(arguments, option)?)?;
        let shown: String = shown(name.trim()).chars().take(LONGEST_NAME).collect();
        (!shown.is_empty()).then_some(shown)
    })
}

/// The value of the last `-option VALUE`, `--option VALUE` or `--option=VALUE`. What follows `--` is no option.
fn value<'a>(arguments: &[&'a str], option: &str) -> Option<&'a str> {
    let options =
        arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    let mut found = None;
    for (at, argument) in arguments[..options].iter().enumerate() {
        let Some(rest) = argument.strip_prefix('-') else { continue };
        match rest.strip_prefix('-').unwrap_or(rest).strip_prefix(option) {
            Some("") => found = arguments[..options].get(at + 1).copied().or(found),
            Some(value) => found = value.strip_prefix('=').or(found),
            None => {}
        }
    }
    found
}

/// A value may be a list, as QEMU's `guest=NAME,debug-threads=on`, in which a comma of the name stands twice, or Cloud
/// Hypervisor's `path=SOCKET`. A descriptor is no name.
fn of_list(value: &str) -> Option<String> {
    let mut parts = vec![String::new()];
    let mut rest = value.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ',' if rest.next_if_eq(&',').is_none() => parts.push(String::new()),
            c => parts.last_mut().into_iter().for_each(|part| part.push(c)),
        }
    }
    let of = |key| parts.iter().find_map(|part: &String| part.strip_prefix(key));
    let first = || Some(parts[0].as_str()).filter(|part| !part.starts_with("fd="));
    of("guest=").or_else(|| of("path=")).or_else(first).map(str::to_owned)
}

/// A text that a process has chosen, without what moves a terminal's cursor or turns the direction of its line.
pub(crate) fn shown(text: &str) -> String {
    let moves = |c: char| {
        c.is_control()
            || matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(moves, "?")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(arguments: &str) -> Option<String> {
        of_arguments(&arguments.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn a_vm_is_called_what_its_vmm_was_told() {
        for (arguments, expected) in [
            ("-accel kvm -name web-1 -m 64", Some("web-1")),
            ("--name web-1", Some("web-1")),
            ("-name guest=web-1,debug-threads=on", Some("web-1")),
            ("-name debug-threads=on,guest=web-1", Some("web-1")),
            ("-name web-1,process=vm", Some("web-1")),
            ("-name a,,b,process=vm", Some("a,b")),
            ("-name a -name b", Some("b")),
            ("--id 551e7604 --api-sock /run/fc.sock", Some("551e7604")),
            ("--api-sock /run/fc.sock", Some("/run/fc.sock")),
            ("--api-socket path=/run/ch.sock --memory size=1G", Some("/run/ch.sock")),
            ("--api-socket=/run/ch.sock", Some("/run/ch.sock")),
            ("--api-socket fd=3", None),
            ("run --socket /run/crosvm.sock kernel", Some("/run/crosvm.sock")),
            // Options that only begin alike, values of others, and what is no option.
            ("-nameless x -identity y --named=z", None),
            ("-device virtio-net,id=net0 name web-1", None),
            ("-accel kvm -name", None),
            ("-- -name web-1", None),
            ("-name -- x", None),
            ("-name= --id ", None),
            ("", None),
        ] {
            assert_eq!(named(arguments).as_deref(), expected, "{arguments}");
        }
    }

    #[test]
    fn a_name_does_not_move_a_cursor_or_turn_a_line() {
        assert_eq!(named("-name a\x1b[2J\u{202E}b\u{2066}"), Some("a?[2J?b?".to_owned()));
        assert_eq!(named(&format!("-name {}", "ä".repeat(500))), Some("ä".repeat(128)));
    }

    #[test]
    fn a_command_line_that_never_ends_is_read_in_part() {
        let directory = std::env::temp_dir().join(format!("mayfly-named-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let of = |line: &[u8]| {
            std::fs::write(directory.join("cmdline"), line).unwrap();
            name(&directory)
        };
        let long = [b"vmm\0-name\0".as_slice(), &vec![b'x'; 1 << 20]].concat();
        let found =
            [of(b"vmm\0-name\0web\0"), of(&long), of(b"-name\0web\0"), of(b"\xFF\0-name\0\xFF")];
        std::fs::remove_dir_all(&directory).unwrap();
        let expected =
            [Some("web".to_owned()), Some("x".repeat(128)), None, Some("\u{FFFD}".to_owned())];
        assert_eq!(found, expected);
        assert_eq!(name(&directory), None);
    }

    proptest! {
        /// Whatever a process has as its command line, a name has no control character and an end.
        #[test]
        fn any_arguments_give_a_name_that_can_be_shown(arguments in prop::collection::vec(
            prop_oneof!["(-|--)(name|id|socket|api-socket)(=.{0,4})?", "\\PC{0,6}", ".{0,6}", "[,=]{0,4}"], 0..8)) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if let Some(name) = of_arguments(&arguments) {
                prop_assert!(!name.is_empty() && name.chars().count() <= LONGEST_NAME);
                prop_assert!(!name.chars().any(char::is_control));
            }
        }
    }
}
