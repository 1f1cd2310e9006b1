//! What unsafe code promises the core is listed in one place: each `unsafe` function and trait of its public API, and
//! none that there is not.

mod here;

use std::fs::read_to_string;
use std::path::Path;

use here::here;

/// The page, and how the list in it begins.
const PAGE: &str = "docs/memory-safety.md";
const LIST: &str = "| promised by unsafe code | what |";

/// Crates that list their public API.
const CRATES: usize = 9;

/// An unsafe function or trait, by its path without what is generic in it.
fn promised(line: &str) -> Option<String> {
    let words = ["unsafe fn ", "unsafe trait "];
    let (is, path) = words.into_iter().find_map(|is| Some((is, line.split_once(is)?.1)))?;
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
    let name = if is.contains("trait") { name.split(": ").next()? } else { &name };
    Some(name.to_owned())
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

/// What the list names, in the first column of its rows: a method whose type is not given is of the type before it.
fn named(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| *line != LIST).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let mut all = Vec::new();
    for row in rows {
        let cell = row.split('|').nth(1).unwrap_or_default();
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

/// What the list does not name, and what it names and is not unsafe.
fn faults(unsafe_items: &[String], page: &str) -> (Vec<String>, Vec<String>) {
    let named = named(page);
    let is_any = |path: &str, names: &[String]| names.iter().any(|name| is(path, name));
    let missing = unsafe_items.iter().filter(|path| !named.iter().any(|names| is_any(path, names)));
    let idle = named.iter().filter(|names| {
        // What tests alone have is in no listing.
        !names[0].starts_with("testing::") && !unsafe_items.iter().any(|path| is_any(path, names))
    });
    (missing.cloned().collect(), idle.map(|names| names[0].clone()).collect())
}

/// The unsafe items of all crates of `core` that list their public API, and how many crates those are.
fn unsafe_items(root: &Path) -> (Vec<String>, usize) {
    let folders = root.join("crates/core").read_dir().unwrap();
    let listings = folders.map(|folder| folder.unwrap().path().join("public-api.txt"));
    let listings: Vec<_> = listings.filter(|listing| listing.exists()).collect();
    let lines = listings.iter().map(|listing| read_to_string(listing).unwrap());
    let items = lines.flat_map(|text| text.lines().filter_map(promised).collect::<Vec<_>>());
    (items.collect(), listings.len())
}

#[test]
fn each_unsafe_function_and_trait_of_the_core_is_in_the_list_of_what_memory_safety_rests_on() {
    let (items, crates) = unsafe_items(here());
    assert_eq!(crates, CRATES, "of so many crates the public API is listed");
    let page = read_to_string(here().join(PAGE)).unwrap();
    let (missing, idle) = faults(&items, &page);
    assert!(missing.is_empty(), "{PAGE} does not name {missing:#?}");
    assert!(idle.is_empty(), "{PAGE} names {idle:?}, which no public API has as unsafe");
}

#[test]
fn what_is_missing_or_there_no_more_is_found() {
    let listing = "pub unsafe fn one::Type<T>::method<'a>(&'a self, u32) -> Result<(), E>\n\
                   pub fn one::Type<T>::safe(&self)\n\
                   pub const unsafe fn one::Type::other(&self)\n\
                   pub unsafe fn one::memory::free_function<T>(impl FnOnce(T) -> U)\n\
                   pub unsafe trait one::memory::Trait<B>: core::marker::Send + 'static\n";
    let items: Vec<_> = listing.lines().filter_map(promised).collect();
    let expected = [
        "one::Type::method",
        "one::Type::other",
        "one::memory::free_function",
        "one::memory::Trait",
    ];
    assert_eq!(items, expected);
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
