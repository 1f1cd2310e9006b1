//! What a run does to the host that it is on, and to its user's files: with real processes.

mod common;
mod signals;
mod streams;
mod terminal;
