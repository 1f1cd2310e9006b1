//! What memslots promise their users.

mod bounds;
mod common;
mod dirty;
mod lookup;
mod model;
mod rules;
mod threads;
mod waiting;
