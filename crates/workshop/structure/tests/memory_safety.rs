//! What unsafe code promises the core is listed in one place: each `unsafe` function and trait of its public API, and
//! none that there is not. A second list has what any program may call: what it names is there, and is safe.

mod here;

use std::fs::read_to_string;
use std::path::Path;

use here::here;

/// The page, and how the lists in it begin.
const PAGE: &str = "docs/memory-safety.md";
const LIST: &str = "| promised by unsafe code | what |";
const SAFE_LIST: &str = "| safe to call | why |";

/// Crates that list their public API.
const CRATES: usize = 9;

/// An item of a public API: its path without what is generic in it, and whether it is unsafe to call or to implement.
#[derive(Debug)]
struct Item {
    path: String,
    is_unsafe: bool,
}

impl Item {
    /// The function, trait or type that a line of a listing has.
    fn read(line: &str) -> Option<Self> {
        let line = line.strip_prefix("pub ")?;
        let words = ["fn ", "trait ", "struct ", "enum "];
        let (before, path) = words.into_iter().find_map(|word| {
            let at = if line.starts_with(word) { 0 } else { line.find(&format!(" {word}"))? + 1 };
            Some((&line[..at], &line[at + word.len()..]))
        })?;
        let (mut depth, mut name) = (0, String::new());
        for letter in path.chars() {
            match letter {
                '<' => depth += 1,
                '>' => depth -= 1,
                '(' if depth == 0 => break,
                _ if depth == 0 => name.push(letter),
                _ => {}
            }
        }
        // Behind a trait's name come those that it implies.
        let path = name.split(": ").next()?.to_owned();
        Some(Self { path, is_unsafe: before.contains("unsafe ") })
    }
}

/// Whether `named`, which is a type and its method, or a function or trait by itself, is the item of that path.
fn is(path: &str, named: &str) -> bool {
    let (of, name) = path.rsplit_once("::").unwrap_or(("", path));
    let of = of.rsplit("::").next().unwrap_or("");
    // A method is named with its type, so that one of another type is not taken for it.
    if of.starts_with(char::is_uppercase) {
        named == format!("{of}::{name}")
    } else {
        named == name
    }
}

/// The first cells of a list's rows.
fn cells<'a>(page: &'a str, list: &str) -> impl Iterator<Item = &'a str> {
    let rows = page.lines().skip_while(move |line| *line != list).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap_or_default())
}

/// What the list of promises names, in the first column of its rows: a method whose type is not given is of the type before
/// it.
fn named(page: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for cell in cells(page, LIST) {
        let mut of = None;
        for span in cell.split('`').skip(1).step_by(2) {
            let mut names = vec![span.to_owned()];
            match (span.rsplit_once("::"), of) {
                (Some((before, _)), _) => of = Some(before),
                (None, Some(of)) => names.push(format!("{of}::{span}")),
                (None, None) => {}
            }
            all.push(names);
        }
    }
    all
}

/// What the list of promises does not name, and what it names and is not unsafe.
fn faults(items: &[Item], page: &str) -> (Vec<String>, Vec<String>) {
    let named = named(page);
    let promised: Vec<_> = items.iter().filter(|item| item.is_unsafe).map(|it| &it.path).collect();
    let is_any = |path: &str, names: &[String]| names.iter().any(|name| is(path, name));
    let missing = promised.iter().filter(|path| !named.iter().any(|names| is_any(path, names)));
    let idle = named.iter().filter(|names| {
        // What tests alone have is in no listing.
        !names[0].starts_with("testing::") && !promised.iter().any(|path| is_any(path, names))
    });
    (missing.map(|path| (*path).clone()).collect(), idle.map(|names| names[0].clone()).collect())
}

/// What the list of safe functions names and is not there, or is unsafe. A method whose type is not given is of a type that
/// the row names.
fn not_safe(items: &[Item], crates: &[String], page: &str) -> Vec<String> {
    let is_safe = |named: &str| items.iter().any(|item| !item.is_unsafe && is(&item.path, named));
    let mut faults = Vec::new();
    for cell in cells(page, SAFE_LIST) {
        let spans: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
        let types: Vec<_> = spans
            .iter()
            .map(|span| span.rsplit_once("::").map_or(*span, |(of, _)| of))
            .filter(|of| of.starts_with(char::is_uppercase))
            .collect();
        for span in spans {
            let is_there = crates.iter().any(|name| name == span)
                || is_safe(span)
                || types.iter().any(|of| is_safe(&format!("{of}::{span}")));
            if !is_there {
                faults.push(span.to_owned());
            }
        }
    }
    faults
}

/// The public APIs of all crates of `core` that list theirs, how many crates those are, and the names of all crates there.
fn of_core(root: &Path) -> (Vec<Item>, usize, Vec<String>) {
    let folders = root.join("crates/core").read_dir().unwrap();
    let folders: Vec<_> = folders.map(|folder| folder.unwrap().path()).collect();
    let listings = folders.iter().map(|folder| folder.join("public-api.txt"));
    let listings: Vec<_> = listings.filter(|listing| listing.exists()).collect();
    let lines = listings.iter().map(|listing| read_to_string(listing).unwrap());
    let items = lines.flat_map(|text| text.lines().filter_map(Item::read).collect::<Vec<_>>());
    let crates = folders.iter().filter(|folder| folder.join("Cargo.toml").exists());
    let names = crates.map(|it| format!("mayfly-{}", it.file_name().unwrap().to_str().unwrap()));
    (items.collect(), listings.len(), names.collect())
}

#[test]
fn each_unsafe_function_and_trait_of_the_core_is_in_the_list_of_what_memory_safety_rests_on() {
    let (items, listed, _) = of_core(here());
    assert_eq!(listed, CRATES, "of so many crates the public API is listed");
    let page = read_to_string(here().join(PAGE)).unwrap();
    let (missing, idle) = faults(&items, &page);
    assert!(missing.is_empty(), "{PAGE} does not name {missing:#?}");
    assert!(idle.is_empty(), "{PAGE} names {idle:?}, which no public API has as unsafe");
}

#[test]
fn each_name_in_the_list_of_what_any_program_may_call_is_there_and_safe() {
    let (items, _, crates) = of_core(here());
    let page = read_to_string(here().join(PAGE)).unwrap();
    assert!(cells(&page, SAFE_LIST).count() > 10, "{PAGE} has no such list");
    let faults = not_safe(&items, &crates, &page);
    assert!(faults.is_empty(), "{PAGE} names {faults:?}, which no public API has as safe");
}

#[test]
fn what_is_missing_or_there_no_more_is_found() {
    let listing = "pub unsafe fn one::Type<T>::method<'a>(&'a self, u32) -> Result<(), E>\n\
                   pub fn one::Type<T>::safe(&self)\n\
                   pub const unsafe fn one::Type::other(&self)\n\
                   pub unsafe fn one::memory::free_function<T>(impl FnOnce(T) -> U)\n\
                   pub unsafe trait one::memory::Trait<B>: core::marker::Send + 'static\n";
    let items: Vec<_> = listing.lines().filter_map(Item::read).collect();
    let expected = [
        "one::Type::method",
        "one::Type::other",
        "one::memory::free_function",
        "one::memory::Trait",
    ];
    let promised = items.iter().filter(|item| item.is_unsafe).map(|item| &*item.path);
    assert_eq!(promised.collect::<Vec<_>>(), expected);
    let page = |rows: &str| format!("# Safety\n\n{LIST}\n| --- | --- |\n{rows}\n\n`Trait`\n");
    let whole = "| `Type::method`, `other` | `a` |\n| `free_function`; `Trait` (of `b`) | c |";
    let of_b = (vec![], vec![String::from("b")]);
    assert_eq!(faults(&items, &page(whole)), of_b);
    for (less, missing) in [
        (whole.replace("`other`", "other"), "one::Type::other"),
        (whole.replace("`Type::method`", "`Other::method`, `Type::other`"), "one::Type::method"),
        (whole.replace("`Trait`", ""), "one::memory::Trait"),
        (whole.replace("`free_function`", "free"), "one::memory::free_function"),
    ] {
        assert_eq!(faults(&items, &page(&less)).0, [missing], "{less}");
    }
    let more = page(&[whole, "| `Type::safe`, `testing::Type::word` | d |"].join("\n"));
    assert_eq!(faults(&items, &more).1, ["b", "Type::safe"]);
    assert_eq!(faults(&items, "# Safety\n").0, expected, "there is no list");
}

#[test]
fn a_name_of_the_second_list_that_is_not_there_or_not_safe_is_found() {
    let listing = "pub struct one::Type<T>\n\
                   pub fn one::Type<T>::safe<'a>(&'a self)\n\
                   pub const fn one::Type<T>::constant(&self)\n\
                   pub fn one::Other::elsewhere(&self)\n\
                   pub unsafe fn one::Type::method(&self)\n\
                   pub trait one::Trait: core::marker::Send\n\
                   pub unsafe trait one::Promise\n";
    let items: Vec<_> = listing.lines().filter_map(Item::read).collect();
    let crates = [String::from("mayfly-one")];
    let page =
        |cell: &str| format!("# Safety\n\n{SAFE_LIST}\n| --- | --- |\n| {cell} | why, `if` |\n");
    let faults = |cell: &str| not_safe(&items, &crates, &page(cell));
    for cell in
        ["`Type::safe`, `constant`, `Trait`", "`Type` (what `safe` gives)", "all of `mayfly-one`"]
    {
        assert_eq!(faults(cell), [""; 0], "{cell}");
    }
    for (cell, fault) in [
        ("`Type::method`, `safe`", "Type::method"),
        ("`Type::gone`", "Type::gone"),
        ("`Type::safe`, `elsewhere`", "elsewhere"),
        ("`safe`", "safe"),
        ("`Promise`", "Promise"),
        ("`Gone`", "Gone"),
        ("`mayfly-two`", "mayfly-two"),
    ] {
        assert_eq!(faults(cell), [fault], "{cell}");
    }
}
