//! What this command was built from and by, as its build script found; and the host that it runs on.

use mayfly_record::{Build, Host};

pub(crate) fn built() -> Build {
    let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Build {
        commit: said(env!("MAYFLY_COMMIT")),
        modified: env!("MAYFLY_MODIFIED").parse().ok(),
        rustc: env!("MAYFLY_RUSTC").to_owned(),
        profile: env!("MAYFLY_PROFILE").to_owned(),
    }
}

/// The host, and the command line. What of that is no UTF-8 is kept with a mark in its place.
pub(crate) fn host() -> Host {
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    Host { build: Some(built()), ..Host::gather(arguments) }
}
