//! The stable set: frames that no guest writes to, by their contents.

use std::collections::HashMap;

use mayfly_platform::address::Pfn;

use crate::Arena;
use crate::address_space::equal;

/// Frames, each with a reference of the set's own, by the checksum of their contents.
#[derive(Debug, Default)]
pub(super) struct Stable {
    frames: HashMap<u64, Vec<Pfn>>,
}

/// What shares the frames of the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Frames that any page has.
    pub(super) frames: u64,
    /// Pages that have them.
    pub(super) pages: u64,
    /// Contents that are in several.
    pub(super) chains: u64,
    /// Those several.
    pub(super) duplicates: u64,
}

/// Pages that have `frame`, which is in the set.
fn pages(arena: &Arena, frame: Pfn) -> u64 {
    arena.references(frame) - 1
}

impl Stable {
    pub(super) fn contains(&self, sum: u64, frame: Pfn) -> bool {
        self.frames.get(&sum).is_some_and(|frames| frames.contains(&frame))
    }

    /// A frame that holds the same as `frame`, if one `has_room` for another page beside so many.
    pub(super) fn find(
        &self,
        sum: u64,
        frame: Pfn,
        arena: &Arena,
        has_room: impl Fn(Pfn, u64) -> bool,
    ) -> Option<Pfn> {
        let fits =
            |&&stable: &&Pfn| has_room(stable, pages(arena, stable)) && equal(arena, stable, frame);
        self.frames.get(&sum)?.iter().find(fits).copied()
    }

    /// Adds a frame, and takes over the caller's reference to it.
    pub(super) fn insert(&mut self, sum: u64, frame: Pfn) {
        self.frames.entry(sum).or_default().push(frame);
    }

    /// Gives up the frames that no page has.
    pub(super) fn prune(&mut self, arena: &Arena) {
        self.frames.retain(|_, frames| {
            frames.retain(|&frame| {
                let stays = pages(arena, frame) > 0;
                if !stays {
                    arena.put(frame);
                }
                stays
            });
            !frames.is_empty()
        });
    }

    /// Gives up all frames.
    pub(super) fn clear(&mut self, arena: &Arena) {
        for frame in self.frames.drain().flat_map(|(_, frames)| frames) {
            arena.put(frame);
        }
    }

    pub(super) fn counts(&self, arena: &Arena) -> Shared {
        let mut shared = Shared::default();
        for frames in self.frames.values() {
            let in_use = frames.iter().map(|&frame| pages(arena, frame)).filter(|&pages| pages > 0);
            let (mut nodes, mut having) = (0, 0);
            for pages in in_use {
                nodes += 1;
                having += pages;
            }
            shared.frames += nodes;
            shared.pages += having;
            if nodes > 1 {
                shared.chains += 1;
                shared.duplicates += nodes;
            }
        }
        shared
    }
}
