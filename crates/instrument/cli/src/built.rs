//! What this command was built from and by, as its build script found.

use mayfly_record::Build;

pub(crate) fn built() -> Build {
    let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Build {
        commit: said(env!("MAYFLY_COMMIT")),
        modified: env!("MAYFLY_MODIFIED").parse().ok(),
        rustc: env!("MAYFLY_RUSTC").to_owned(),
        profile: env!("MAYFLY_PROFILE").to_owned(),
    }
}
