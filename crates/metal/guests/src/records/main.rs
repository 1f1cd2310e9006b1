//! A guest whose data outlasts power cuts: it says what it has flushed, and in its next life finds that there.
//!
//! Its parameter is `guest=keeps:SAID-LIFE`: SAID is the last number up to which it has said to have flushed, and LIFE the
//! number of its machine's life. Its disk has slots (`record`), in which it writes records that are numbered.
//!
//! - It reads all slots. Each sector has to be of a record, whole, and of none that is older than what was flushed.
//! - It writes a record to each slot, so that no slot has one that might not have been written.
//! - It writes up to eight records at once, flushes them, and says `guest: flushed NUMBER`, over and over. Some records have
//!   zeroes, which it asks for without writing them.
//! - Now and then it discards sectors that have no records, if its disk offers that.
//!
//! In each fourth life it does not take the feature of flushes. Then what is answered as written has to be kept.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-records-guest is a guest, not a process: `make metal-cuts` builds and starts it"
    );
    std::process::exit(1);
}

#[cfg(target_os = "none")]
mod course;
#[cfg(target_os = "none")]
mod disk;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
#[path = "../queue.rs"]
mod queue;
#[cfg(target_os = "none")]
mod record;
