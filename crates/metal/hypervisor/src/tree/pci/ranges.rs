//! The windows of a PCI bus: where processors see its addresses (Devicetree Specification 0.4, 2.3.8; IEEE 1275 PCI Bus
//! Binding 2.1, 2.2.1.1, of the three cells of an address).

use alloc::vec::Vec;

use crate::board::Region;

/// In the first cell of an address: the space, and that it may be read ahead.
const SPACE: u32 = 3 << 24;
const CONFIGURATION: u32 = 0;
const PORTS: u32 = 1 << 24;
const NARROW: u32 = 2 << 24;
const PREFETCHABLE: u32 = 1 << 30;

/// The most ranges that are looked at.
const MOST: usize = 32;

/// Addresses of a PCI bus that processors see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciWindow {
    /// Where the bus has them.
    pub bus: u64,
    /// Where processors see them.
    pub cpu: Region,
    /// They may be read ahead.
    pub is_prefetchable: bool,
}

/// The windows of memory in a property `ranges` or `dma-ranges`, on a bus whose addresses have `parent_cells` cells. Ranges of
/// ports are left out.
///
/// `None` where its length does not fit; where a range has no space, ends beyond all addresses, or beyond 32 bits if it says
/// that it has no more; and where two overlap, as the bus or as processors see them.
pub(super) fn parse(ranges: &[u8], parent_cells: usize) -> Option<Vec<PciWindow>> {
    let length = 4 * (3 + parent_cells + 2);
    let is_read = matches!(parent_cells, 1 | 2)
        && ranges.len().is_multiple_of(length)
        && ranges.len() / length <= MOST;
    if !is_read {
        return None;
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let mut windows: Vec<PciWindow> = Vec::new();
    for range in ranges.chunks_exact(length) {
        let (address, rest) = range.split_at(12);
        let (cpu, size) = rest.split_at(4 * parent_cells);
        let (kind, bus) = address.split_at(4);
        let (kind, bus, cpu, size) = (number(kind) as u32, number(bus), number(cpu), number(size));
        let end = bus.checked_add(size)?;
        let cpu = cpu..cpu.checked_add(size)?;
        match kind & SPACE {
            PORTS => continue,
            CONFIGURATION => return None,
            NARROW if end > 1 << 32 => return None,
            _ => {}
        }
        if cpu.is_empty() {
            continue;
        }
        let is_apart = |other: &PciWindow| {
            let other_end = other.bus + (other.cpu.end - other.cpu.start);
            (end <= other.bus || other_end <= bus)
                && (cpu.end <= other.cpu.start || other.cpu.end <= cpu.start)
        };
        if !windows.iter().all(is_apart) {
            return None;
        }
        windows.push(PciWindow { bus, cpu, is_prefetchable: kind & PREFETCHABLE != 0 });
    }
    Some(windows)
}

/// Whether devices reach all of `memory` by these windows, where processors see it.
pub(super) fn reach(windows: &[PciWindow], memory: &[Region]) -> bool {
    memory.iter().all(|memory| {
        windows.iter().any(|window| {
            window.bus == window.cpu.start
                && window.cpu.start <= memory.start
                && memory.end <= window.cpu.end
        })
    })
}
