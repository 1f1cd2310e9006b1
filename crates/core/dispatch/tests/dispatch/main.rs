//! The dispatcher: the life of a flow, frames that lie, a naive model, and hostile ones.

mod hostile;
mod lies;
mod life;
mod model;
mod wire;
