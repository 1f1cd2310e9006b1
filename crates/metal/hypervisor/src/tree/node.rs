//! What a node of a device tree says of itself.

use core::ops::Range;

use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

/// Addresses.
pub type Region = Range<u64>;

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
