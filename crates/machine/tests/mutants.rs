//! No step of the cache protocol can be left out, or put elsewhere: without it some scenario reads stale data.
//!
//! The crates are copied to `target/mutants`, and for each step built and played there with that step changed in their
//! text. That takes a build each, so it is a part of its own:
//!
//!     cargo test -p mayfly-machine --test mutants -- --ignored --nocapture
//!
//! That the texts are there to be changed, all tests of the crate say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is played: it fails, and says so, where a read is stale.
const TEST: &str = "guests_find_what_they_rely_on";
const STALE: &str = " reads stale on ";

/// A step, and how it is changed: in which file, what text for which.
struct Mutant {
    step: &'static str,
    edits: &'static [(&'static str, &'static str, &'static str)],
}

const CACHES: &str = "crates/vm/src/caches.rs";
const FAULT: &str = "crates/vm/src/fault.rs";
const MEMORY: &str = "crates/vm/src/memory.rs";
const NOTIFIER: &str = "crates/vm/src/notifier.rs";
const WRITTEN: &str = "crates/stage2/src/written.rs";

/// Has those who are told of the frames that were written told by what takes a slice of marks, at any moment in that.
const EACH_IN_SLICE: [(&str, &str, &str); 3] = [
    (
        WRITTEN,
        "root.take_written_slice(left, slice, &meant, &mut told)",
        "root.take_written_slice(left, slice, &meant, &mut told, &mut each)",
    ),
    (
        WRITTEN,
        "told.each_run(&mut each);
            done
        });
    }

    /// Tells",
        "done
        });
    }

    /// Tells",
    ),
    (
        WRITTEN,
        "meant: Meant<'_>,
        told: &mut Told,
    ) -> bool {",
        "meant: Meant<'_>,
        told: &mut Told,
        mut each: &mut dyn FnMut(Pfn, u64),
    ) -> bool {",
    ),
];

const MUTANTS: [Mutant; 23] = [
    Mutant {
        step: "a frame is cleaned when it is mapped",
        edits: &[(CACHES, "self.cache.clean(first, count);", "")],
    },
    Mutant {
        step: "a frame is cleaned when it takes another's place",
        edits: &[(NOTIFIER, "with, |pfn| vm.ready_frames(pfn, 1)", "with, |_: Pfn| ()")],
    },
    Mutant {
        step: "it is cleaned before its entry can be found",
        edits: &[
            (CACHES, "[Some(root), other]", "[None, other]"),
            (
                FAULT,
                "if self.maintains_maps() && leaf.memory == MemoryType::WriteBack {
                // There may be no such frames.
                Root::<W::Format>::check_frames(level, pfn)?;
                self.ready_to_map(first, level, pfn, root, section);
            }
            let mapped = root.map(gfn, level, &Leaf { pfn, ..leaf }, seen, section)?;",
                "let mapped = root.map(gfn, level, &Leaf { pfn, ..leaf }, seen, section)?;
            if self.maintains_maps() && leaf.memory == MemoryType::WriteBack {
                self.ready_to_map(first, level, pfn, root, section);
            }",
            ),
        ],
    },
    Mutant {
        step: "what is mapped past the caches is read-only until it is written",
        edits: &[(FAULT, "if !write && (logs || marks) {", "if !write && logs {")],
    },
    Mutant {
        step: "the first write is recorded",
        edits: &[(FAULT, "(level, leaf.written) = (Level::PAGE, true);", "level = Level::PAGE;")],
    },
    Mutant {
        step: "what is flushed is read-only again",
        edits: &[(
            WRITTEN,
            "let permissions = leaf.permissions - Permissions::WRITE;",
            "let permissions = leaf.permissions;",
        )],
    },
    Mutant {
        step: "TLBs forget the right to write",
        edits: &[(WRITTEN, "self.flush.add(at.gfn, at.level);", "")],
    },
    Mutant {
        step: "they have forgotten it before the flush",
        edits: &[
            EACH_IN_SLICE[0],
            EACH_IN_SLICE[1],
            EACH_IN_SLICE[2],
            (
                WRITTEN,
                "changing.finish(take.flush, from..range.start);",
                "take.told.each_run(&mut each);
        changing.finish(take.flush, from..range.start);",
            ),
        ],
    },
    Mutant {
        step: "marks are taken before the flush",
        edits: &[
            EACH_IN_SLICE[0],
            EACH_IN_SLICE[1],
            EACH_IN_SLICE[2],
            (
                WRITTEN,
                "TakeWritten { flush: Flush::new(), meant, told }",
                "TakeWritten { flush: Flush::new(), meant, told, each: &mut each }",
            ),
            (
                WRITTEN,
                "struct TakeWritten<'a> {",
                "struct TakeWritten<'a> { each: &'a mut dyn FnMut(Pfn, u64),",
            ),
            (
                WRITTEN,
                "let permissions = leaf.permissions - Permissions::WRITE;",
                "(self.each)(leaf.pfn, at.level.pages());
        let permissions = leaf.permissions - Permissions::WRITE;",
            ),
        ],
    },
    Mutant {
        step: "who finds nothing to flush waits for who is flushing",
        edits: &[(CACHES, "tracking.flushes.synchronize_expedited();", "")],
    },
    Mutant {
        step: "what was written is invalidated in the caches",
        edits: &[(
            CACHES,
            "self.cache.clean_invalidate(first, count);",
            "self.cache.clean(first, count);",
        )],
    },
    Mutant {
        step: "what was written is flushed when caches are turned on",
        edits: &[(
            CACHES,
            "(false, CacheOp::On) => self.flush_written(Gfn::new(0)..Gfn::new(u64::MAX)),",
            "",
        )],
    },
    Mutant {
        step: "turning caches off empties the root of those who are off",
        edits: &[(
            CACHES,
            "(true, CacheOp::Off | CacheOp::SetWay) =>",
            "(true, CacheOp::SetWay) =>",
        )],
    },
    Mutant {
        step: "it is known that something is mapped in that root",
        edits: &[(CACHES, "tracking.mapped.store(true, Ordering::Relaxed);", "")],
    },
    Mutant {
        step: "what was written there is flushed before",
        edits: &[(CACHES, "self.flush_written(all.clone());", "")],
    },
    Mutant {
        step: "that root is zapped",
        edits: &[(
            CACHES,
            "self.stage2.zap_role(Role::MARKED, all, Tables::Free, self.slice);",
            "drop(all);",
        )],
    },
    Mutant {
        step: "faults that cleaned before that are refused",
        edits: &[(
            CACHES,
            "let invalidation = self.stage2.begin_invalidation(&all);",
            "let invalidation = ();",
        )],
    },
    Mutant {
        step: "what is mapped elsewhere is not taken for clean from then on",
        edits: &[(CACHES, "tracking.left_behind.store(true,", "tracking.left_behind.store(false,")],
    },
    Mutant {
        step: "set and way is taken for maintenance",
        edits: &[(CACHES, "(true, CacheOp::Off | CacheOp::SetWay) =>", "(true, CacheOp::Off) =>")],
    },
    Mutant {
        step: "it has caches watched for being turned off",
        edits: &[(CACHES, "CacheOp::SetWay => caches.watched = true,", "CacheOp::SetWay => {}")],
    },
    Mutant {
        step: "what was written is flushed before the host reads it",
        edits: &[(NOTIFIER, "self.flush_written(gfns.clone());", "")],
    },
    Mutant {
        step: "what was written is flushed before its slot is deleted",
        edits: &[(MEMORY, "self.flush_written(gfns.clone());", "")],
    },
    Mutant {
        step: "what was written is flushed before all roots are replaced",
        edits: &[(MEMORY, "self.flush_written(Gfn::new(0)..Gfn::new(u64::MAX));", "")],
    },
];

#[test]
fn each_step_is_where_it_is_changed() {
    for Mutant { step, edits } in MUTANTS {
        for edit in edits {
            find(&workspace(), step, edit);
        }
    }
}

#[test]
#[ignore = "builds the crates once a step; scripts/test has it as a part of its own"]
fn without_any_one_step_some_scenario_reads_stale() {
    let copy = Copy::make();
    let (passes, output) = copy.play();
    assert!(passes, "without a change:\n{output}");
    for Mutant { step, edits } in MUTANTS {
        let originals: Vec<_> = edits.iter().map(|edit| copy.edit(step, edit)).collect();
        let (passes, output) = copy.play();
        for (path, text) in originals.into_iter().rev() {
            fs::write(path, text).unwrap();
        }
        let stale: Vec<_> = output.lines().filter(|line| line.contains(STALE)).collect();
        assert!(!passes && !stale.is_empty(), "nobody misses that {step}:\n{output}");
        println!("without that {step}:\n  {}\n", stale.join("\n  "));
    }
}

/// The workspace, copied to where it can be changed.
struct Copy {
    target: PathBuf,
    source: PathBuf,
}

impl Copy {
    fn make() -> Self {
        let workspace = workspace();
        let target = workspace.join("target/mutants");
        let source = target.join("source");
        for file in ["Cargo.toml", "Cargo.lock"] {
            copy(&workspace.join(file), &source.join(file));
        }
        let _ = fs::remove_dir_all(source.join("crates"));
        copy_tree(&workspace.join("crates"), &source.join("crates"));
        Self { target: target.join("build"), source }
    }

    /// Changes a text that a file has once. Returns the file, and what it was.
    fn edit(&self, step: &str, edit: &(&str, &str, &str)) -> (PathBuf, String) {
        let (path, text) = find(&self.source, step, edit);
        let (_, from, to) = edit;
        fs::write(&path, text.replace(from, to)).unwrap();
        (path, text)
    }

    /// Returns whether the scenarios pass, and what was said.
    fn play(&self) -> (bool, String) {
        let output = Command::new(env!("CARGO"))
            .args([
                "test",
                "--package",
                "mayfly-machine",
                "--test",
                "coherence",
                "--",
                "--exact",
                TEST,
            ])
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        let text = [output.stderr, output.stdout].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Finds the text of an edit, which its file has once. Returns the file, and what it says.
fn find(source: &Path, step: &str, (file, from, _): &(&str, &str, &str)) -> (PathBuf, String) {
    let path = source.join(file);
    let text = fs::read_to_string(&path).unwrap();
    let found = text.matches(from).count();
    assert_eq!(found, 1, "in {file}, to change that {step}, this should be there once:\n{from}");
    (path, text)
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            copy(&entry.path(), &to);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}
