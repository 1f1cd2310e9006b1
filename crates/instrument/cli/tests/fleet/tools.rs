//! Programs of others: installed, or unpacked by scripts/setup.

use std::env;
use std::path::{Path, PathBuf};

/// Where scripts/setup unpacks them.
fn unpacked() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/fleet/usr")
}

/// A program, if it is on this host.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["bin", "sbin"].map(|place| unpacked().join(place)));
    places.map(|place| place.join(name)).find(|program| program.is_file())
}

/// A program; where it is not, says that the test is not run.
pub(crate) fn needed(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        eprintln!("not run: there is no {name} here; make setup-test fetches it");
    }
    found
}

/// Where modules of Python are that were unpacked.
pub(crate) fn python_modules() -> PathBuf {
    unpacked().join("lib/python3/dist-packages")
}
