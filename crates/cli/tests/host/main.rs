//! What a run does to the host that it is on, and to its user's files: with real processes, and the real page merger
//! where it is to be had.

mod common;
mod merger;
mod signals;
mod streams;
mod terminal;
