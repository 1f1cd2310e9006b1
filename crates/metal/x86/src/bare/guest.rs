//! The processor of a vCPU ([`GuestCpu`]), and what it asks of the rest of the guest's machine ([`Machine`]).

mod access;
mod confinement;
mod cpu;
mod enter;
mod exits;
mod machine;
mod msrs;
mod pending;
mod window;

pub use confinement::Confinement;
pub use cpu::GuestCpu;
pub use machine::{CANNOT, Glance, Machine, Next, Ram, Reason, SHUT_DOWN, Time, WAITS};
