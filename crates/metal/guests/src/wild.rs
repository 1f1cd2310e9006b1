//! Random numbers, and drivers of virtio devices that do as they like.

pub mod devices;
pub mod random;
mod virtio;
