//! The boot on x86-64: the first instructions, the program's own tables, and the other processors.

mod cpus;
mod loaded;
mod lost;
mod map;
mod start;
