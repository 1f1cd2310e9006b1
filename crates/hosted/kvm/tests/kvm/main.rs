//! The VM's life on this host's KVM. Where there is none, each test that needs one returns at once.

mod builder;
mod cache_switch;
mod common;
mod dirty_log;
mod facts;
mod guest;
mod host;
mod life;
mod waits;
