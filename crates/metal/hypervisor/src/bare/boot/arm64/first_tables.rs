//! The tables that the first processor's MMU is turned on by, until the program has made its own.

use core::sync::atomic::AtomicU64;

/// A table of 256 TiB, an entry 512 GiB, and tables of 512 GiB, an entry a GiB.
#[repr(C, align(4096))]
pub(super) struct Tables(pub(super) [[AtomicU64; 512]; 5]);

/// What the first processor's MMU is turned on by: the table of all, and those of the lowest addresses, of the image, of
/// the device tree, and of the console. In data, so that they are not cleared when they are in use.
#[unsafe(link_section = ".data.first_tables")]
pub(super) static FIRST_TABLES: Tables = Tables([const { [const { AtomicU64::new(0) }; 512] }; 5]);
