//! Waiting for other threads, as long as the host has let them run.
//!
//! Looks are counted and not seconds: on a busy host whoever looks is kept from its processor just as those are that it
//! waits for, and a second is nothing there.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Looks that find nothing before it is given up: half a minute at least, on a host that does nothing else.
const LOOKS: u32 = 30_000;

const BETWEEN: Duration = Duration::from_millis(1);

/// What somebody sends; nothing, where nobody is left who could, or nobody has for so long.
#[allow(dead_code, reason = "each test has its own copy of this module")]
pub(crate) fn received<T>(from: &Receiver<T>) -> Option<T> {
    for _ in 0..LOOKS {
        match from.recv_timeout(BETWEEN) {
            Ok(sent) => return Some(sent),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    None
}

/// Waits as long, doing `meanwhile` again and again until it says that it is enough.
#[allow(dead_code, reason = "each test has its own copy of this module")]
pub(crate) fn spent(mut meanwhile: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if meanwhile() {
            return;
        }
        thread::sleep(BETWEEN);
    }
}
