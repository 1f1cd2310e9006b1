//! The program, on its machine.

mod console;
mod cpus;
mod entry;
mod heap;
mod kick;
mod life;
mod machine;
mod map;
mod memory;
mod monitor;
mod seat;
mod threads;
mod uart;
mod vcpu;
mod vm;
mod world;
