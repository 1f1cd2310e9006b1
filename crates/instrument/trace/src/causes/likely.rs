//! The form of a cause that a detector names.

use crate::record::{Cause, Verdict};

/// A cause that its evidence speaks for.
pub(super) fn likely(
    code: &str,
    what: impl Into<String>,
    remedy: &str,
    evidence: Vec<String>,
) -> Cause {
    Cause {
        code: code.to_owned(),
        what: what.into(),
        remedy: remedy.to_owned(),
        evidence,
        verdict: Verdict::Likely,
        gain: None,
    }
}
