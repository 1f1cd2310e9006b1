//! What memslots promise their users.

mod bounds;
mod common;
mod dirty;
mod lookup;
mod model;
mod over;
mod rules;
mod threads;
mod waiting;
