//! What happens to VMs by itself, until it is said: a bounded number of events. Those beyond are lost, and counted.

use alloc::collections::VecDeque;

/// The most bytes of the name of a VM.
const LONGEST: usize = 32;

/// As much of a text as has `most` bytes at most.
pub fn beginning(text: &str, most: usize) -> &str {
    let mut lens = (0..=most.min(text.len())).rev();
    lens.find_map(|len| text.get(..len)).unwrap_or_default()
}

/// The name of a VM. An event is kept where no memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Name {
    /// This name; as much of it as the longest name has.
    pub fn new(name: &str) -> Self {
        let name = beginning(name, LONGEST);
        let mut bytes = [0; LONGEST];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Self { bytes, len: name.len() }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A VM has ended: its guest has powered it off, or somebody has ended or frozen it.
    Ended(Name),
    /// A VM was ended, because memory had ended.
    OutOfMemory(Name),
    /// A VM could not go on, or could not begin.
    Crashed(Name),
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

    /// How many are to be said.
    pub fn count(&self) -> usize {
        self.queue.len() + usize::from(self.lost > 0)
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

    /// One that was taken was not said: nobody was there any more. It is before all others.
    pub fn give_back(&mut self, event: Event) {
        match event {
            Event::Lost(count) => self.lost = self.lost.saturating_add(count),
            // Its place may be another's by now.
            _ if self.queue.len() < self.most => self.queue.push_front(event),
            _ => self.lost = self.lost.saturating_add(1),
        }
    }
}
