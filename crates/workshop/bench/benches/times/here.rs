//! What all rows use.

use std::sync::Arc;

use mayfly_bench::liburcu::Registered;
use mayfly_bench::qsbr;
use mayfly_platform::Platform;
use mayfly_srcu::{Reader, Srcu};

/// What this thread reads and waits with: a reader of Mayfly's, and registrations with liburcu.
pub(crate) struct Here {
    pub(crate) host: Arc<dyn Platform>,
    pub(crate) domain: Srcu,
    pub(crate) reader: Reader,
    pub(crate) liburcu: Registered,
    pub(crate) qsbr: qsbr::Registered,
}

/// `1 slot`, `8 slots`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
