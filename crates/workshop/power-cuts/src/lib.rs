//! A disk that forgets what was not flushed when the power is cut ([`Store`]), served by NBD ([`nbd`]), and the life of a
//! machine that has it, up to a cut ([`serve`]).

mod random;
mod serve;
mod store;

pub mod nbd;

pub use random::Random;
pub use serve::{Disk, Made, Served, serve};
pub use store::{Loss, Moment, NoSuchSectors, SECTOR, Store};
