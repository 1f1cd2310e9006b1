//! Devices that are saved and loaded: each goes on as it would have, and bytes that somebody has made up make none that
//! could not have come about.

mod psci;
mod rtc;
mod uart;

#[path = "../common/state.rs"]
mod state;
