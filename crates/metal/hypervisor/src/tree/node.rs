//! What a node of a device tree says of itself.

use alloc::vec::Vec;

use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

use crate::board::{Line, Region};

/// A property of one cell.
pub(super) fn word(node: FdtNode<'_>, name: &str) -> Option<u32> {
    Some(u32::from_be_bytes(node.property(name)?.value().try_into().ok()?))
}

/// Whether the tree says that the node can be used (Devicetree Specification 0.4, 2.3.4): without a status it can.
pub(super) fn is_available(node: FdtNode<'_>) -> bool {
    node.property("status").is_none() || matches!(text(node, "status"), Some("okay" | "ok"))
}

pub(super) fn span(start: u64, size: u64) -> Region {
    start..start.saturating_add(size)
}

pub(super) fn text<'a>(node: FdtNode<'a>, name: &str) -> Option<&'a str> {
    let value =
        node.properties().find(|property| property.name() == name)?.value_as::<&'a [u8]>().ok()?;
    core::str::from_utf8(value.split(|&byte| byte == 0).next()?).ok()
}

/// The first interrupt of a child of a `GICv3`: three cells, of which the first two are type and number. `None` for those of
/// the extended ranges.
pub(super) fn interrupt(node: FdtNode<'_>) -> Option<u32> {
    let value = node.property("interrupts")?.value().to_vec();
    let word = |at: usize| Some(u32::from_be_bytes(value.get(at..at + 4)?.try_into().ok()?));
    match word(0)? {
        0 => word(4)?.checked_add(32),
        1 => word(4)?.checked_add(16),
        _ => None,
    }
}

/// The line that an interrupt of a `GICv3` is, by its cells: type, number and flags. `None` where it is no shared one.
pub(super) fn line(interrupt: &[u32]) -> Option<Line> {
    let &[0, number, flags, ..] = interrupt else { return None };
    let number = number.checked_add(32).filter(|number| *number < 1020)?;
    // An edge is 1, rising, or 2, falling.
    Some(Line { number, is_edge: flags & 3 != 0 })
}

/// The cells of a property; `None` where it has other bytes behind them.
pub(super) fn cells(bytes: &[u8]) -> Option<Vec<u32>> {
    let (cells, rest) = bytes.as_chunks();
    rest.is_empty().then(|| cells.iter().map(|cell| u32::from_be_bytes(*cell)).collect())
}
