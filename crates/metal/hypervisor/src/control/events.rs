//! What happens to VMs by itself, until it is said: a bounded number of events. Those beyond are lost, and counted.

use alloc::collections::VecDeque;
use alloc::string::String;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A VM has ended: its guest has powered it off, or somebody has ended it.
    Ended(String),
    /// A VM was ended, because memory had ended.
    OutOfMemory(String),
    /// A VM could not go on, or could not begin.
    Crashed(String),
    /// So many events were lost, before those that follow.
    Lost(u64),
}

/// Events that were not said yet.
#[derive(Debug)]
pub struct Events {
    queue: VecDeque<Event>,
    most: usize,
    lost: u64,
}

impl Events {
    /// None, with room for so many; nothing, if there is no memory for that.
    pub fn try_new(most: usize) -> Option<Self> {
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(most).ok()?;
        Some(Self { queue, most, lost: 0 })
    }

    /// Something has happened. It is lost if there is no room for it, or if others were lost and not said yet: so what is
    /// said is in order.
    pub fn push(&mut self, event: Event) {
        if self.lost > 0 || self.queue.len() >= self.most {
            self.lost = self.lost.saturating_add(1);
        } else {
            self.queue.push_back(event);
        }
    }

    /// The next that is to be said.
    pub fn take(&mut self) -> Option<Event> {
        let next = self.queue.pop_front();
        next.or_else(|| (self.lost > 0).then(|| Event::Lost(core::mem::take(&mut self.lost))))
    }
}
