//! This repository.

use std::path::Path;

pub(crate) fn here() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
}
