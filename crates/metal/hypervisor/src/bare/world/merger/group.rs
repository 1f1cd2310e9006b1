//! The groups within which pages are merged, and the frames that each shares.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use mayfly_merge::Group;
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::memory::OutOfMemory;

use crate::bare::threads::{self, Account};
use crate::bare::world::memory::shelf::Shelf;
use crate::bare::world::platform::World;
use crate::bare::world::share::Share;

/// In how many shelves a place is looked for.
const MOST_LOOKED: usize = 4;

/// The groups that there are.
#[derive(Default)]
pub(super) struct Groups {
    all: Vec<Shared>,
    next: u32,
}

/// A group.
struct Shared {
    group: Group,
    name: String,
    /// How many runs have joined.
    members: usize,
    world: Arc<World>,
    shelves: RefCell<Shelves>,
}

#[derive(Default)]
struct Shelves {
    all: Vec<Shelf>,
    /// Where a place was found last.
    at: usize,
    /// How far it was looked for in the others.
    looked: usize,
}

impl Shelves {
    fn take(&mut self, world: &World) -> Option<Pfn> {
        if let Some(frame) = self.all.get(self.at).and_then(|shelf| shelf.take()) {
            return Some(frame);
        }
        for _ in 0..MOST_LOOKED.min(self.all.len()) {
            self.looked = (self.looked + 1) % self.all.len();
            if let Some(frame) = self.all[self.looked].take() {
                self.at = self.looked;
                return Some(frame);
            }
        }
        self.all.try_reserve(1).ok()?;
        let empty = Shelf::try_new(world)?;
        self.at = self.all.len();
        self.all.push(empty);
        empty.take()
    }

    /// Frees those that are empty.
    fn tidy(&mut self) {
        self.all.retain(|shelf| {
            threads::interrupts::look();
            let is_empty = shelf.is_empty();
            if is_empty {
                shelf.give_up();
            }
            !is_empty
        });
        // So that it mostly goes on where a shelf is not full.
        let last = self.all.len().saturating_sub(1);
        (self.at, self.looked) = (self.at.min(last), self.looked.min(last));
    }
}

impl Groups {
    /// A run joins the group of that name.
    pub(super) fn join(
        &mut self,
        name: &str,
        account: &Arc<Account>,
    ) -> Result<Group, OutOfMemory> {
        if let Some(shared) = self.all.iter_mut().find(|shared| shared.name == name) {
            shared.members += 1;
            return Ok(shared.group);
        }
        self.all.try_reserve(1).map_err(|_| OutOfMemory)?;
        let share = Share::admit(account, 0, 0).map_err(|_| OutOfMemory)?;
        if !share.try_activate() {
            return Err(OutOfMemory);
        }
        let group = Group(self.next);
        self.next += 1;
        let (name, world) = (name.to_string(), World::of(&share));
        self.all.push(Shared { group, name, members: 1, world, shelves: RefCell::default() });
        Ok(group)
    }

    /// A run leaves its group.
    pub(super) fn leave(&mut self, group: Group) {
        if let Some(shared) = self.all.iter_mut().find(|shared| shared.group == group) {
            shared.members -= 1;
        }
    }

    /// A frame that pages of the group may share, with a reference for the merger, to be written; none, if it cannot be guaranteed.
    pub(super) fn take(&self, group: Group) -> Option<Pfn> {
        let shared = self.all.iter().find(|shared| shared.group == group)?;
        shared.shelves.borrow_mut().take(&shared.world)
    }

    /// Frees what no page shares any more, and forgets groups that have nothing.
    pub(super) fn tidy(&mut self) {
        self.all.retain(|shared| {
            let shelves = &mut *shared.shelves.borrow_mut();
            shelves.tidy();
            if let Some(share) = shared.world.share() {
                share.keep();
            }
            shared.members > 0 || !shelves.all.is_empty()
        });
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for shelf in &self.all {
            shelf.give_up();
            threads::interrupts::look();
        }
    }
}
