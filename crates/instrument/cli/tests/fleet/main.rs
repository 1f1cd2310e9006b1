//! What `packaging` has for many hosts, held against what Mayfly writes: names, commands, and a Prometheus that asks them.

mod commands;
mod exposed;
mod names;
mod packaged;
mod pods;
mod prometheus;
mod tools;
