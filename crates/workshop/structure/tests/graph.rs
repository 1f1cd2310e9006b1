//! Which files import which, and which circles are faults.

mod common;
mod here;

use common::repository;
use here::here;
use mayfly_structure::graph::{self, Graph};

/// Of the repository's one package, `crates/core/one`, with these files in its `src`.
fn graph(files: &[(&str, &str)]) -> Graph {
    graph_at("core/one", files)
}

fn graph_at(package: &str, files: &[(&str, &str)]) -> Graph {
    let root = repository(&[]);
    plant(root.path(), package, files);
    graph::graphs(root.path(), None).unwrap().remove(0)
}

fn plant(root: &std::path::Path, package: &str, files: &[(&str, &str)]) {
    let name = package.rsplit('/').next().unwrap();
    let manifest = format!("[package]\nname = \"mayfly-{name}\"\n");
    common::write(root, &format!("crates/{package}/Cargo.toml"), &manifest);
    for (path, text) in files {
        common::write(root, &format!("crates/{package}/src/{path}"), text);
    }
}

/// Whether one file of `crates/core/one/src` imports another.
fn imports(graph: &Graph, from: &str, to: &str) -> bool {
    let path = |file: &str| format!("crates/core/one/src/{file}");
    graph.imports(&path(from), &path(to))
}

#[test]
fn this_repository_has_no_circle_that_is_a_fault() {
    let findings = graph::check(here(), None).unwrap();
    println!("{}", findings.text);
    let faults: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_use_and_a_path_are_imports() {
    for code in [
        "use crate::b::Item;",
        "use super::b::Item;",
        "use crate::{b::{self as other, Item as Renamed}};",
        "use crate::b; fn f() -> b::Item { loop {} }",
        "fn f(_: crate::b::Item) {}",
        "fn f() { let _ = crate::b::Item::new(); }",
        "fn f() { if let crate::b::Choice::One = g() {} }",
        "use crate::b::*; fn f(_: Item) {}",
        "use crate::b::Choice::*;  fn f() { match g() { One => {} } }",
        "fn f() { use crate::b::*; function(); }",
        "impl crate::b::Trait for () {}",
        "fn f<T: crate::b::Trait>() {}",
        "fn f() { <() as crate::b::Trait>::method(); }",
        "fn f() { assert_eq!(1, crate::b::function()); }",
        "fn f() -> bool { matches!(g(), crate::b::Choice::One | _ if true) }",
        "fn f() { let _ = vec![crate::b::function(); 3]; }",
        "fn f() { html! { div .class { (crate::b::function()) } } }",
        "macro_rules! m { ($x:expr) => { $crate::b::function($x) } }",
        "#[cfg(target_arch = \"aarch64\")] use crate::b::Item;",
        "#[cfg(not(test))] use crate::b::Item;",
        "mod inner { use super::super::b::Item; }",
        "#[serde(with = \"crate::b::function\")] struct S;",
        "fn f() { crate::b_macro!(); }",
        "pub(crate) use super::b::Item;",
    ] {
        let b = "pub struct Item; pub enum Choice { One } pub trait Trait {} pub fn function() {}
            #[macro_export] macro_rules! b_macro { () => {} }";
        let graph = graph(&[("lib.rs", "mod a; mod b;"), ("a.rs", code), ("b.rs", b)]);
        assert!(imports(&graph, "a.rs", "b.rs"), "{code}");
        assert!(!imports(&graph, "b.rs", "a.rs"), "{code}");
    }
}

#[test]
fn what_is_no_use_of_an_item_is_no_import() {
    for code in [
        "use crate::b;",
        "use super::b::*;",
        "use super::b::*; fn f() { let function = 1; g(function); }",
        "#[cfg(test)] use crate::b::Item;",
        "#[cfg(all(test, unix))] mod tests { use crate::b::Item; }",
        "#[test] fn f() { crate::b::function(); }",
        "/// [`crate::b::Item`]\nfn f() {}",
        "use std::fmt::Item;",
        "fn f(b: T) { b.function(); }",
        "struct Item; fn f(_: Item) {}",
    ] {
        let b = "pub struct Item; pub fn function() {}";
        let graph = graph(&[("lib.rs", "mod a; mod b;"), ("a.rs", code), ("b.rs", b)]);
        assert!(!imports(&graph, "a.rs", "b.rs"), "{code}");
    }
}

#[test]
fn a_re_export_leads_to_the_definition() {
    let graph = graph(&[
        ("lib.rs", "mod user; mod outer; pub use outer::Item as Renamed; pub use outer::*;"),
        ("user.rs", "use crate::Renamed; fn f(_: crate::Deep) {}"),
        ("outer.rs", "mod inner; pub use inner::Item; pub mod deep; pub use self::deep::*;"),
        ("outer/inner.rs", "pub struct Item;"),
        ("outer/deep/mod.rs", "pub struct Deep;"),
    ]);
    assert!(imports(&graph, "user.rs", "outer/inner.rs"));
    assert!(imports(&graph, "user.rs", "outer/deep/mod.rs"));
    // The modules in between name the items only to re-export them.
    assert!(!imports(&graph, "user.rs", "outer.rs"));
    assert!(!imports(&graph, "lib.rs", "outer/inner.rs"));
    assert!(!imports(&graph, "outer.rs", "outer/inner.rs"));
}

#[test]
fn a_parent_that_uses_what_it_re_exports_imports_it() {
    let graph = graph(&[
        ("lib.rs", "mod child; pub use child::Item; pub fn f(_: Item) {}"),
        ("child.rs", "pub struct Item;"),
    ]);
    assert!(imports(&graph, "lib.rs", "child.rs"));
}

#[test]
fn a_binary_imports_from_the_library_by_its_name() {
    let graph = graph(&[
        ("lib.rs", "mod a; pub use a::Item;"),
        ("a.rs", "pub struct Item;"),
        ("main.rs", "use mayfly_one::Item; fn main() {}"),
    ]);
    assert!(imports(&graph, "main.rs", "a.rs"));
}

#[test]
fn the_path_attribute_says_where_a_module_is() {
    let graph = graph(&[
        ("lib.rs", "mod a; #[path = \"far/away.rs\"] mod b;"),
        ("a.rs", "use crate::b::Item; use crate::b::c::Other;"),
        ("far/away.rs", "pub struct Item; pub mod c;"),
        ("far/c.rs", "pub struct Other;"),
    ]);
    assert!(imports(&graph, "a.rs", "far/away.rs"));
    assert!(imports(&graph, "a.rs", "far/c.rs"));
}

#[test]
fn an_item_that_a_macro_defines_is_in_the_file_of_the_invocation() {
    let graph = graph(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::Number; fn f(_: crate::c::Set) {}"),
        ("b.rs", "macro_rules! number { ($n:ident) => { pub struct $n; } } number!(Number);"),
        ("c.rs", "bitflags! { pub struct Set: u64 { const ONE = 1; } }"),
    ]);
    assert!(imports(&graph, "a.rs", "b.rs"));
    assert!(imports(&graph, "a.rs", "c.rs"));
}

#[test]
fn a_function_and_a_module_of_one_name_are_told_apart() {
    let graph = graph(&[
        ("lib.rs", "mod record; mod guardian; mod a; pub use guardian::record;"),
        ("a.rs", "use crate::record::Field;"),
        ("record.rs", "pub struct Field;"),
        ("guardian.rs", "pub fn record() {}"),
    ]);
    assert!(imports(&graph, "a.rs", "record.rs"));
    assert!(!imports(&graph, "a.rs", "guardian.rs"));
}

#[test]
fn a_path_that_leads_nowhere_is_a_fault() {
    let root = repository(&[]);
    plant(
        root.path(),
        "core/one",
        &[("lib.rs", "mod a; mod b;"), ("a.rs", "\nuse crate::b::Gone;"), ("b.rs", "")],
    );
    let faults = graph::check(root.path(), None).unwrap().faults;
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].to_string().starts_with("crates/core/one/src/a.rs:2: `crate::b::Gone`"),
        "{}",
        faults[0]
    );
}

#[test]
fn a_module_without_a_file_is_named() {
    let root = repository(&[]);
    plant(root.path(), "core/one", &[("lib.rs", "\nmod gone;")]);
    let fault = graph::check(root.path(), None).unwrap_err().to_string();
    assert!(fault.starts_with("crates/core/one/src/lib.rs:2: `mod gone;` has no file"), "{fault}");
}

/// `count` files, each of which imports the next, and the last the first.
fn ring(root: &std::path::Path, package: &str, count: usize) {
    let declared: Vec<String> = (0..count).map(|n| format!("mod f{n};")).collect();
    plant(root, package, &[("lib.rs", &declared.concat())]);
    for n in 0..count {
        let code = format!("pub struct S{n};\nuse crate::f{0}::S{0};", (n + 1) % count);
        plant(root, package, &[(&format!("f{n}.rs"), &code)]);
    }
}

#[test]
fn eight_files_in_a_circle_are_printed_and_nine_are_a_fault() {
    let root = repository(&[]);
    ring(root.path(), "core/eight", 8);
    let findings = graph::check(root.path(), None).unwrap();
    assert!(findings.faults.is_empty());
    assert!(findings.text.starts_with("eight: 8 files in a circle\n"), "{}", findings.text);
    let edge = "    crates/core/eight/src/f7.rs -> crates/core/eight/src/f0.rs (S0:2)\n";
    assert!(findings.text.contains(edge), "{}", findings.text);

    ring(root.path(), "core/nine", 9);
    let faults = graph::check(root.path(), None).unwrap().faults;
    assert_eq!(faults.len(), 1);
    assert!(faults[0].what.contains("a circle of 9 files"), "{}", faults[0]);
    assert!(graph::check(root.path(), Some("eight")).unwrap().faults.is_empty());
}

#[test]
fn a_circle_of_lab_and_of_hypervisor_stays_in_a_folder() {
    // Each has a circle: of x.rs and the files in x, of files side by side, of a file in x and one beside x.
    let within: [(&str, &str); 3] = [
        ("lib.rs", "mod x;"),
        ("x.rs", "pub struct X; mod y; use y::Y;"),
        ("x/y.rs", "pub struct Y; use super::X;"),
    ];
    let beside: [(&str, &str); 3] = [
        ("lib.rs", "mod x; mod y;"),
        ("x.rs", "pub struct X; use crate::y::Y;"),
        ("y.rs", "pub struct Y; use crate::x::X;"),
    ];
    let across: [(&str, &str); 4] = [
        ("lib.rs", "mod x; mod z;"),
        ("x.rs", "pub mod y;"),
        ("x/y.rs", "pub struct Y; use crate::z::Z;"),
        ("z.rs", "pub struct Z; use crate::x::y::Y;"),
    ];
    for (package, files, allowed) in [
        ("instrument/lab", &within[..], true),
        ("instrument/lab", &beside[..], true),
        ("instrument/lab", &across[..], false),
        ("metal/hypervisor", &across[..], false),
        ("core/vm", &across[..], true),
    ] {
        let root = repository(&[]);
        plant(root.path(), package, files);
        let findings = graph::check(root.path(), None).unwrap();
        assert!(findings.text.contains("2 files in a circle"));
        assert_eq!(findings.faults.is_empty(), allowed, "{package}: {}", findings.text);
    }
}
