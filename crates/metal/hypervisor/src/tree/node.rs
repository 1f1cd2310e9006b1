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
