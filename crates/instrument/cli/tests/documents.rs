//! Documentation, held to the command: a page's synopsis has the options of its command, and what pages and examples name
//! is there.

use std::collections::BTreeSet;
use std::path::Path;

use mayfly_structure::docs::{self, Help};

#[path = "common/records.rs"]
mod common;

use common::success;

const PAGES: [(&str, &str); 4] = [
    ("trace", include_str!("../../../../docs/trace.md")),
    ("watch", include_str!("../../../../docs/watch.md")),
    ("doctor", include_str!("../../../../docs/doctor.md")),
    ("laws", include_str!("../../../../docs/laws.md")),
];

/// A command's options as its help lists them, but for `--help` itself.
fn options(command: &str) -> BTreeSet<String> {
    let help = success(&[command, "--help"]);
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let long = lines.filter_map(|line| line.split([' ', ',']).find(|word| word.starts_with("--")));
    long.filter(|option| *option != "--help").map(str::to_owned).collect()
}

/// The options that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let options = words.filter(|word| word.len() > 2 && word.starts_with("--"));
    options.map(str::to_owned).collect()
}

#[test]
fn a_page_s_synopsis_has_the_options_of_the_help_and_no_others() {
    for (command, page) in PAGES {
        let first = format!("    mayfly {command} [");
        let mut lines = page.lines().skip_while(|line| !line.starts_with(&first)).peekable();
        assert!(lines.peek().is_some(), "{command} has no synopsis");
        let synopsis: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
        assert_eq!(named(&synopsis.join("\n")), options(command), "{command}");
    }
}

#[test]
fn what_the_documentation_names_is_there() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let help = Help::of(Path::new(env!("CARGO_BIN_EXE_mayfly"))).unwrap();
    let findings = docs::check(root, &help).unwrap();
    let faults: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn examples_in_the_help_are_of_the_command_and_have_its_options() {
    for (command, _) in PAGES {
        let help = success(&[command, "--help"]);
        let (_, examples) = help.split_once("\nExamples:\n").unwrap();
        let (examples, _) = examples.split_once("\n\n").unwrap();
        let examples = examples.replace("\\\n", "");
        assert!(examples.lines().count() > 1, "{examples}");
        for example in examples.lines() {
            assert!(example.starts_with(&format!("  mayfly {command}")), "{example}");
            let own = example.split([' ', '|']).take_while(|word| *word != "--");
            let own = named(&own.collect::<Vec<_>>().join(" "));
            assert!(own.is_subset(&options(command)), "{example}");
        }
    }
}
