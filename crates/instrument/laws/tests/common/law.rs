//! Laws that tests make up.

use mayfly_laws::{Law, Shape};

/// A law that holds, and of which nothing else is known.
pub(crate) fn law(shape: Shape) -> Law {
    Law {
        shape,
        others: Vec::new(),
        exponent: None,
        growth: None,
        unsure: None,
        held_out: 0.05,
        holds: true,
        millisecond: None,
    }
}
