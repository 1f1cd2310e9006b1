//! The boot on arm64: the first instructions, EL2's own tables, and the other processors.

mod cpus;
mod entry;
mod first_tables;
mod lost;
mod map;
mod start;
