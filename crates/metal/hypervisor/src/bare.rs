//! The program on its machine, in floors. A file imports from its own floor and from those below it, never from one
//! above.
//!
//! | floor, from the lowest | what it has |
//! | --- | --- |
//! | [`processor`] | processors, frames and the heap, the serial port, the trace of what hardware sees |
//! | [`threads`] | threads, waiting, interrupts, the console |
//! | [`world`] | what the core asks of its platform; the memory of a VM, and what happens when memory ends |
//! | [`own`] | the machine's own network card, disk and console |
//! | [`devices`] | the devices of a VM |
//! | [`vm`] | a VM, its vCPUs, and one run of it from its first vCPU to its end |
//! | [`measure`] | lifecycles of a bare guest, counted in instructions |
//! | [`monitor`] | the commands that start VMs, end them and show their state |
//! | [`boot`] | from the boot loader to the monitor |
//!
//! What knows the architecture is in the folders `arm64` and `x86` of each floor. A floor imports that of the machine as
//! `arch`, or re-exports from it under a neutral name. Another architecture writes these folders again, and nothing else
//! here.

mod boot;
mod devices;
mod measure;
mod monitor;
mod own;
mod processor;
mod threads;
mod vm;
mod world;
