//! What a thread does that gets no frame, because memory has ended.
//!
//! It asks for the share that is furthest above its guarantee, has the VM of that share ended, and waits until it gets a
//! frame. A VM that ends, for whatever reason, needs no memory any more: its threads wait for none, and no other VM is
//! ended for them.

use crate::account::ShareId;
use crate::chunks::Chunks;

/// A thread that gets no frame.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The share that it asks for.
    pub share: ShareId,
    /// That share was the furthest above its guarantee: its VM is being ended.
    pub was_chosen: bool,
    /// Its VM ends for good, for another reason.
    pub is_ending: bool,
}

/// What it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It asks again: there is a frame for it.
    Again,
    /// It waits for a while. The VM of a share is to be ended first, unless none is above its guarantee, or what one had
    /// is just coming back. It may be its own.
    Wait(Option<ShareId>),
    /// It waits no longer: its own VM ends.
    Over,
}

impl Asker {
    /// What this thread does next.
    pub fn next(self, machine: &mut Chunks<'_>) -> Next {
        if self.was_chosen || self.is_ending {
            Next::Over
        } else if machine.has_frame_for(self.share) {
            Next::Again
        } else {
            Next::Wait(machine.choose(self.share))
        }
    }
}
