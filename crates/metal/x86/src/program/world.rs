//! What the core runs in: frames, the heap, and the platform; and the memory of guests.

pub(super) mod copy;
pub(super) mod frames;
pub(super) mod heap;
pub(super) mod memory;
pub(super) mod platform;

pub(super) use platform::World;
