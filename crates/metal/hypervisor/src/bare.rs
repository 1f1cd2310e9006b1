//! The program, on its machine.

mod clock;
mod console;
mod cpus;
mod devices;
mod disk;
mod entropy;
mod entry;
mod heap;
mod kick;
mod life;
mod machine;
mod map;
mod masked;
mod measure;
mod memory;
mod monitor;
mod once;
mod seat;
mod shared;
mod threads;
mod trace;
mod uart;
mod vcpu;
mod virtio;
mod vm;
mod world;
