//! The dispatcher: the life of a flow, frames that lie, a naive model, hostile ones, and TCP of others over a wire that
//! loses frames.

mod hostile;
mod last;
mod lies;
mod life;
mod making;
mod model;
mod numbers;
mod real;
mod steps;
mod wire;
