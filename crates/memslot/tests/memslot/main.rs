//! What memslots promise their users.

mod common;
mod dirty;
mod lookup;
mod model;
mod rules;
mod threads;
mod waiting;
