//! A VM that does not hear all that it is told, for tests that have to notice it.

use mayfly_machine::Telling;
use mayfly_machine::address_space::{Change, Notifier};
use mayfly_stage2::Format;

pub(super) const DEAF: &str = "deaf";

/// Does not hear which frame takes a page's place.
pub(super) struct Deaf<F: Format>(pub(super) Telling<F>);

impl<F: Format> Notifier for Deaf<F> {
    fn invalidate_start(&self, change: &Change) {
        self.0.invalidate_start(change);
    }

    fn invalidate_end(&self, change: &Change) {
        self.0.invalidate_end(change);
    }
}
