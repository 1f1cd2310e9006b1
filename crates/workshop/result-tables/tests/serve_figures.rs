//! The script that writes what a fork for a connection takes, by phase, into its page.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PAGE: &str = include_str!("../../../../docs/fork.md");

const SAID: &str = "web: 100 forks made, 100 destroyed, 0 alive\r
web: 1813 ns from its SYN until it is begun to be made, on average of 100 forks\r
web: 113499 ns until its card has the SYN, on average of 100 forks\r
web: 2296272 ns until its first frame, on average of 100 forks\r
web: 122041563 ns until its connection is over, on average of 100 forks\r
web: 999 ns until everything that it had is free, on average of 100 forks\r
";

/// Runs the script with a page of that text; what it says, and the page afterwards.
fn write(name: &str, page: &str, said: &str) -> (Output, String) {
    let document = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&document, page).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/serve-figures");
    let mut running = Command::new(script)
        .arg("write")
        .env("DOCUMENT", &document)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it reads.
    let _ = running.stdin.take().unwrap().write_all(said.as_bytes());
    let output = running.wait_with_output().unwrap();
    (output, fs::read_to_string(document).unwrap())
}

#[test]
fn the_page_has_the_phases_that_were_said_last() {
    let (output, page) = write("phases.md", PAGE, SAID);
    assert!(output.status.success(), "{output:?}");
    let rows = "| phase | instructions |
| --- | ---: |
| from its SYN until it is begun to be made | 1,813 |
| until its card has the SYN | 113,499 |
| until its first frame | 2,296,272 |
| until its connection is over | 122,041,563 |
| until everything that it had is free | 999 |

";
    assert!(page.contains(rows), "{page}");
    let rest = |page: &str| {
        let lines = page.lines().filter(|line| !line.starts_with("| "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rest(&page), rest(PAGE));
    let (output, again) = write("phases-again.md", &page, SAID);
    assert!(output.status.success() && again == page, "{output:?}");
}

#[test]
fn a_page_stays_as_it_is_where_phases_are_missing_or_its_table_is() {
    let four = SAID.replace("web: 999 ns", "web: 999 ms");
    let no_table = PAGE.replace("| phase |", "| stage |");
    for (name, page, said, why) in [
        ("four.md", PAGE, &*four, "4 phases were said, and not 5"),
        ("nothing.md", PAGE, "", "0 phases were said, and not 5"),
        ("no-table.md", &*no_table, SAID, "has no table of 5 phases"),
    ] {
        let (output, after) = write(name, page, said);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{name}: {said}");
        assert_eq!(after, page, "{name}");
    }
}
