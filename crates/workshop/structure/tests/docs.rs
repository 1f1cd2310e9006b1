//! What documentation names is there, in repositories made for a test. `documents` of mayfly-cli checks this one's.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

use common::{repository, write};
use mayfly_structure::docs::{self, Help, OTHERS, README_CHARACTERS};
use tempfile::TempDir;

/// What a program of a few subcommands says of itself, as clap prints it.
const PROGRAM: &str = r#"#!/bin/sh
case "$1" in
    --help)
        echo "Lives of VMs

Usage: mayfly [OPTIONS] <COMMAND>

Commands:
  run     Runs experiments
            --none: a description
  trace   Follows a VMM
  watch   Looks at all
  doctor  Looks at the host

Options:
  -V, --version  Prints the version" ;;
    run)
        echo "Usage: mayfly run [OPTIONS] [EXPERIMENT]...

Options:
      --backend <BACKEND>
          Where it runs; --none is no flag
  -q, --quiet                  No progress
      --full                   All of it
      --json[=<FILE>]          The record
      --vms <N>                How many
      --time <TIME>            How long
      --fail-if <THRESHOLD>    Fails" ;;
    trace) echo "Options:
  -j, --json <FILE>  The record" ;;
    doctor) echo "Options:
      --json  The record" ;;
esac
"#;

fn help() -> &'static Help {
    static HELP: OnceLock<Help> = OnceLock::new();
    HELP.get_or_init(|| {
        let root = repository(&[("mayfly", PROGRAM)]);
        let program = root.path().join("mayfly");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        Help::of(&program).unwrap()
    })
}

fn faults(root: &Path) -> Vec<String> {
    docs::check(root, help()).unwrap().faults.iter().map(ToString::to_string).collect()
}

const MAKEFILE: &str = "CASES ?= 1\nARGS ?=\n.PHONY: run fuzz\n\nrun: setup ## run it\n\tmayfly run $(ARGS)\nfuzz metal-run:\n\techo\n";

const OTHERS_NAMES: &str =
    "[[project]]\nname = \"Linux\"\nnames = [\n    \"kernel/rcu/srcutree.c\",\n]\n";

const PAGE: &str = "# A page\n\n## `Vm` and its end, 2 of 3\n\n`kernel/rcu/srcutree.c`\n";

/// A repository with this as a page of `docs`.
fn planted(page: &str) -> TempDir {
    repository(&[
        ("Makefile", MAKEFILE),
        ("README.md", "# One\n"),
        (
            "crates/core/one/Cargo.toml",
            "[package]\nname = \"mayfly-one\"\n[[bin]]\nname = \"mayfly-program\"\n",
        ),
        ("crates/core/one/src/lib.rs", ""),
        ("crates/core/one/tests/model/main.rs", ""),
        ("docs/other.md", PAGE),
        ("docs/page.md", page),
        ("scripts/test", ""),
        (OTHERS, OTHERS_NAMES),
    ])
}

#[test]
fn what_is_there_has_no_fault() {
    for page in [
        "`make`, `make run`, `make fuzz CASES=3`, `make run ARGS=\"teardown --vms 3\"`",
        "    make fuzz CASES=3   # tries 3 of each, and make no more\n    $ sudo make run && make fuzz\n",
        "`mayfly`, `mayfly --version`, `mayfly run teardown --backend machine -q`",
        "    mayfly trace --json t.json -- ./vmm --its-options --no-such-flag\n",
        "    MAYFLY_SOAK=3 target/release/mayfly run --fail-if 'ratio > 1.1' | jq --no-such-flag\n",
        "    mayfly run [EXPERIMENT...] [--backend auto|machine]\n               [--time TIME] [--fail-if THRESHOLD]...\n",
        "    mayfly run \\\n      --full\n",
        "        mayfly      peer    ratio\n    mayfly: nothing was lost\n",
        "`mayfly SUBCOMMAND --flag`, `mayfly-*`, `mayfly-PID-0`, `mayfly-one.json`",
        "`mayfly-one`, `mayfly-one.workspace = true`, `mayfly-program`, `mayfly_one::two::Three`",
        "`--full`, `[--time TIME]`",
        "`crates/core/one`, `crates/core/one/src/lib.rs:12`, `crates/*/one/src/*.rs`, `crates/FOLDER/CRATE`",
        "`tests/model`, `one/src/lib.rs`, `tests/model/*.rs`, `target/none.rs`, `/dev/none.rs`, `a.b/1`",
        "[a](other.md) [b](other.md#vm-and-its-end-2-of-3) [c](../README.md#one) [d](#e) [f](../crates/core/one)\n\n# E\n",
        "[a](../crates/core/one/src/lib.rs#L1) [b](https://example.org/none.md#none) <img src=\"other.md\">",
        "make none, mayfly none, mayfly-none and crates/none in prose are words",
        "```rust\nmake none; mayfly none\n```\n",
    ] {
        let root = planted(page);
        assert_eq!(faults(root.path()), Vec::<String>::new(), "{page}");
    }
}

#[test]
fn a_dead_name_is_found_with_its_line() {
    for (page, what) in [
        // Targets of make, and their variables.
        ("\n`make none`", "`make none` is no target"),
        ("\n`make run none`", "`make none` is no target"),
        ("text\n\n    make run\n    $ cd x && make none # it\n", "`make none` is no target"),
        ("\n`make fuzz NONE=3`", "`NONE`"),
        // Subcommands of mayfly, and their flags.
        ("\n`mayfly none`", "`mayfly none`"),
        ("\n`mayfly run --no-such-flag`", "`mayfly run --no-such-flag`"),
        ("\n`mayfly run -x`", "`mayfly run -x`"),
        ("\n`mayfly watch --vms 3`", "`mayfly watch --vms`"),
        ("\n`mayfly --vms`", "`mayfly --vms`"),
        (
            "\n\n    # ./target/release/mayfly doctor --no-such-flag=3\n",
            "`mayfly doctor --no-such-flag`",
        ),
        (
            "\n```\nmayfly run [EXPERIMENT] [--full]\n    [--no-such-flag N]...\n```\n",
            "`mayfly run --no-such-flag`",
        ),
        ("\n```sh\nmayfly run --full \\\n  --no-such-flag\n```\n", "`mayfly run --no-such-flag`"),
        ("\n`make run ARGS=\"teardown --no-such-flag\"`", "`mayfly run --no-such-flag`"),
        ("\n`--no-such-flag`", "`--no-such-flag`"),
        ("\n`[--no-such-flag N]`", "`--no-such-flag`"),
        // Crates.
        ("\n`mayfly-none`", "`mayfly-none`"),
        ("\n`mayfly_none::Some`", "`mayfly-none`"),
        ("\n```rust\nuse mayfly_none::Some;\n```\n", "`mayfly-none`"),
        ("\n```toml\nmayfly-none = \"0.1\"\n```\n", "`mayfly-none`"),
        // Paths.
        ("\n`crates/none`", "`crates/none`"),
        ("\n`docs/none.md`", "`docs/none.md`"),
        ("\n`scripts/none`", "`scripts/none`"),
        ("\n`packaging/none`", "`packaging/none`"),
        ("\n`.ci/none`", "`.ci/none`"),
        ("\n`crates/*/none/*.rs`", "`crates/*/none/*.rs`"),
        ("\n`core/one/src/lib.rs` `tests/none.rs`", "`tests/none.rs`"),
        ("\n`kernel/none.c`", "`kernel/none.c`"),
        ("\n    cat crates/none/a.rs:3\n", "`crates/none/a.rs`"),
        // Links.
        ("\n[a](none.md)", "the link to `none.md`"),
        ("\n[a](../../outside.md)", "the link to `../../outside.md`"),
        ("\n![a](none.svg)", "the link to `none.svg`"),
        ("\n[a][b]\n\n[b]: none.md", "the link to `none.md`"),
        ("\n<img src=\"none.svg\">", "the link to `none.svg`"),
        ("\n[a](other.md#none)", "leads to no heading of docs/other.md"),
        ("\n[a](#none)", "leads to no heading of docs/page.md"),
        ("\n[a](../crates/core/one/src/lib.rs#none)", "leads to no heading"),
    ] {
        let root = planted(page);
        let faults = faults(root.path());
        assert_eq!(faults.len(), 1, "{page}: {faults:?}");
        let (place, said) = faults[0].split_once(": ").unwrap();
        assert!(said.contains(what), "{page}: {said}");
        let line: usize = place.strip_prefix("docs/page.md:").unwrap().parse().unwrap();
        assert!((2..=4).contains(&line), "{page}: {place}");
    }
}

#[test]
fn a_name_of_another_project_is_listed_while_a_page_has_it() {
    let root = planted("`arch/none.c`");
    assert_eq!(faults(root.path()).len(), 1);
    write(
        root.path(),
        OTHERS,
        &format!("{OTHERS_NAMES}\n[[project]]\nname = \"Another\"\nnames = [\"arch/none.c\"]\n"),
    );
    assert_eq!(faults(root.path()), Vec::<String>::new());

    write(root.path(), "docs/page.md", "nothing");
    let faults = faults(root.path());
    assert_eq!(faults.len(), 1);
    let said = format!("{OTHERS}:9: no page needs `arch/none.c` of Another to be listed");
    assert!(faults[0].starts_with(&said), "{}", faults[0]);
}

#[test]
fn readmes_of_crates_and_contributing_are_pages() {
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "crates/README.md",
        "crates/core/one/README.md",
        "docs/a/b.md",
    ] {
        let root = planted("");
        write(root.path(), page, "`make none`");
        let faults = faults(root.path());
        assert_eq!(faults.len(), 1, "{page}: {faults:?}");
        assert!(faults[0].starts_with(&format!("{page}:1: ")), "{}", faults[0]);
    }
}

#[test]
fn a_readme_that_is_too_long_is_a_fault() {
    let root = planted("");
    // Letters of two bytes: characters count.
    write(root.path(), "README.md", &"é".repeat(README_CHARACTERS));
    assert_eq!(faults(root.path()), Vec::<String>::new());
    write(root.path(), "README.md", &"é".repeat(README_CHARACTERS + 1));
    let faults = faults(root.path());
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("README.md: has 9001 characters"), "{}", faults[0]);
}
