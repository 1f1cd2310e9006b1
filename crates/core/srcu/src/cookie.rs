//! The name of a grace period that a caller has asked for.

use core::cmp::Ordering as Order;

/// Names the grace period that [`Srcu::start_poll`](crate::Srcu::start_poll) asked for. Cookies of one domain are ordered as their grace
/// periods; those of different domains are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a grace period that nobody asks about need not be started"]
pub struct Cookie {
    /// Where the domain is: its address, which another has at the earliest when this one's readers are all gone.
    pub(crate) domain: usize,
    pub(crate) number: u64,
}

impl PartialOrd for Cookie {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        (self.domain == other.domain).then(|| self.number.cmp(&other.number))
    }
}
