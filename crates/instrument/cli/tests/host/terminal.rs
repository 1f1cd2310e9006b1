//! What a run draws on a terminal.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::common::mayfly;

/// What is drawn on a terminal of so many columns by a run of two experiments.
fn drawn(columns: u16) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let path = OsStr::from_bytes(name.as_bytes());
    let terminal = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let run = ["run", "device-registration", "slot-delete", "--backend", "machine"];
    let more = ["--vms", "3", "--vcpus", "2", "--rounds", "2"];
    let mut command = mayfly(&[&run[..], &more].concat());
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(terminal);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut drawn = Vec::new();
    // When the last who has the terminal open is gone, reading fails.
    let _ = File::from(controller).read_to_end(&mut drawn);
    assert!(child.wait().unwrap().success());
    String::from_utf8(drawn).unwrap()
}

/// What stands on the line after each of its drawings.
fn lines(drawn: &str) -> Vec<String> {
    let plain = console::strip_ansi_codes(drawn);
    plain.split('\r').map(|line| line.trim_matches('\n').trim_end().to_owned()).collect()
}

#[test]
fn the_bar_moves_fits_sixty_columns_and_is_gone_afterwards() {
    let drawn = drawn(60);
    let bars: Vec<String> = lines(&drawn).into_iter().filter(|line| line.contains('%')).collect();
    assert!(bars.iter().all(|line| line.chars().count() <= 60), "{bars:#?}");
    let mut different = bars.clone();
    different.dedup();
    assert!(different.len() > 6, "{bars:#?}");
    for experiment in ["1/2 device-registration", "2/2 slot-delete"] {
        assert!(bars.iter().any(|line| line.contains(experiment)), "{bars:#?}");
    }
    assert!(!drawn.contains("mayfly: "), "lines are for those who cannot see a bar: {drawn:?}");
    // The cursor is at the beginning of a line that was cleared, and nothing came after.
    let last = drawn.rfind('%').unwrap();
    let after = &drawn[last..];
    let cleared = after.rfind("\x1b[2K").or_else(|| after.rfind("\x1b[K")).unwrap();
    let rest = console::strip_ansi_codes(&after[cleared..]).into_owned();
    assert!(rest.chars().all(|c| c == '\r' || c == ' '), "{rest:?}");
}
