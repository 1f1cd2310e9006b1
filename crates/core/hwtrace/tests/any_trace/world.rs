//! A small world, and what is drawn of it: a few frames, VMIDs, TLBs and entries.
//!
//! Any event may come at any time. But most events are such that what they say fits what came before: a write finds what
//! is there, a root has a frame that is given out. Otherwise the checker would stop at the first fault.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_hwtrace::{Barrier, Event, Family, Reach, Record, Scope};
use proptest::prelude::*;

/// Frames for tables and pages. The first is the first of a block of level 1.
const FIRST: u64 = 0x200;
const FRAMES: u64 = 5;
const CPUS: u32 = 3;
const VMIDS: u16 = 2;
const INDEXES: u32 = 2;
const KINDS: u8 = 46;

/// One or some events: the kind, the CPU, and of what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    kind: u8,
    cpu: u32,
    /// A frame, an index, and what an entry comes to have.
    frame: u64,
    index: u32,
    value: u8,
    other: u64,
    /// Which of some ways.
    way: u8,
    /// The event need not fit what came before.
    is_odd: bool,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::sample::select(vec![0_u8, 0, 2, 8, 25]).prop_flat_map(|odd| {
        let of = (0..KINDS, 0..CPUS, 0..FRAMES, 0..INDEXES, 0..8_u8, 0..FRAMES);
        let step = (of, 0..12_u8, 0..100_u8).prop_map(move |(of, way, luck)| {
            let (kind, cpu, frame, index, value, other) = of;
            Step { kind, cpu, frame, index, value, other, way, is_odd: luck + odd >= 100 }
        });
        prop::collection::vec(step, 3..40)
    })
}

pub(crate) fn families() -> impl Strategy<Value = Family> {
    let all = vec![Family::Ept, Family::Arm, Family::ArmFwb, Family::Npt, Family::RiscV];
    prop::sample::select(all)
}

/// What the events so far have made.
#[derive(Default)]
struct World {
    family: Option<Family>,
    given: BTreeSet<u64>,
    /// Roots, and how many levels each has.
    roots: BTreeMap<u64, u32>,
    entries: BTreeMap<(u64, u32), u64>,
    /// The root of each VMID.
    taken: BTreeMap<u16, u64>,
    /// The VMID of each TLB's guest.
    inside: BTreeMap<u32, u16>,
    generation: u64,
    issued: u64,
    records: Vec<Record>,
}

/// The records of these steps, one after another.
pub(crate) fn records(family: Family, steps: &[Step]) -> Vec<Record> {
    let mut world = World { family: Some(family), ..World::default() };
    for step in steps {
        world.step(step);
    }
    world.records
}

impl World {
    fn push(&mut self, cpu: u32, event: Event) {
        let at = self.records.len() as u64;
        self.follow(&event);
        self.records.push(Record { begin: 2 * at, end: 2 * at + 1, cpu, event });
    }

    /// Has what an event makes.
    fn follow(&mut self, event: &Event) {
        match *event {
            Event::Give { frame, order } => {
                let frames = frame..frame + (1 << order);
                self.entries.retain(|(table, _), _| !frames.contains(table));
                self.given.extend(frames);
            }
            Event::Free { frame, order } => {
                let frames = frame..frame + (1 << order);
                self.roots.retain(|top, _| !frames.contains(top));
                self.given.retain(|one| !frames.contains(one));
            }
            Event::Root { top, levels, .. } => drop(self.roots.insert(top, levels)),
            Event::RootGone { top } => drop(self.roots.remove(&top)),
            Event::Entry { table, index, new, .. } | Event::Mark { table, index, new, .. } => {
                self.entries.insert((table, index), new);
            }
            Event::Fill { table, index, count, value, step } => {
                for number in (index..index + count).take_while(|number| *number < INDEXES) {
                    let bits = value.wrapping_add(step.wrapping_mul(u64::from(number - index)));
                    self.entries.insert((table, number), bits);
                }
            }
            Event::VmidGive { vmid } => drop(self.taken.remove(&vmid)),
            Event::Generation { generation } => self.generation = generation,
            Event::Enter { tlb, vmid, .. } => drop(self.inside.insert(tlb, vmid)),
            Event::Leave { tlb, .. } => drop(self.inside.remove(&tlb)),
            _ => {}
        }
    }

    /// One of `all`, by a number that is drawn.
    fn one<T: Copy>(all: impl IntoIterator<Item = T>, number: u64) -> Option<T> {
        let all: Vec<T> = all.into_iter().collect();
        let at = number.checked_rem(all.len() as u64)?;
        all.get(at as usize).copied()
    }

    fn free(&self, number: u64) -> Option<u64> {
        Self::one((FIRST..FIRST + FRAMES).filter(|frame| !self.given.contains(frame)), number)
    }

    fn is_linked(&self, frame: u64) -> bool {
        self.roots.contains_key(&frame)
            || self.entries.values().any(|bits| self.frame_of(*bits) == frame)
    }

    fn frame_of(&self, bits: u64) -> u64 {
        if self.family == Some(Family::RiscV) { bits >> 10 } else { bits << 16 >> 28 }
    }

    fn unlinked(&self, number: u64) -> Option<u64> {
        Self::one(self.given.iter().copied().filter(|frame| !self.is_linked(*frame)), number)
    }

    /// An entry for `frame`, of the kind that is drawn.
    fn value(&self, value: u8, frame: u64) -> u64 {
        let family = self.family.unwrap_or(Family::Ept);
        // A table; a page or block that may be written, may not, was used, and is of another memory type.
        let [table, writable, protected, used, device] = match family {
            Family::Arm | Family::ArmFwb => [3, 0x7fd, 0x77d, 0x3fd, 0x7c1],
            Family::Ept => [7, 0xb7, 0xb5, 0x1b7, 0x87],
            Family::Npt => [7, 0x87, 0x85, 0xe7, 0x97],
            Family::RiscV => [1, 0xdf, 0xdb, 0x1f, 0x5f],
        };
        let is_page = matches!(family, Family::Arm | Family::ArmFwb);
        let low = match value {
            0 => return 0,
            1 => return 8,
            2 | 3 => table,
            4 => writable,
            5 => protected,
            6 => used,
            // Of a page in Arm's formats, bit 1 is set as in a table.
            _ if is_page => writable | 2,
            _ => device,
        };
        if family == Family::RiscV { frame << 10 | low } else { frame << 12 | low }
    }

    fn root_of(&self, step: &Step) -> Option<u64> {
        Self::one(self.roots.keys().copied(), step.frame)
    }

    /// A table that a write may be of: of a root, of what leads on, or of any frame.
    fn table(&self, step: &Step) -> u64 {
        let is_led_to = |frame: u64| {
            let bits = self.value(2, frame);
            self.entries.values().any(|known| *known == bits)
        };
        let linked = self.given.iter().copied().filter(|frame| is_led_to(*frame));
        let any = FIRST + step.frame;
        match step.way {
            _ if step.is_odd => any,
            0..4 => self.root_of(step).unwrap_or(any),
            4..9 => Self::one(linked, step.frame).unwrap_or(any),
            _ => self.unlinked(step.frame).unwrap_or(any),
        }
    }

    fn entry(&mut self, step: &Step, table: u64, new: u64) {
        let index = step.index;
        let there = self.entries.get(&(table, index)).copied().unwrap_or(0);
        let old = if step.is_odd && step.way == 1 {
            self.value(step.value, FIRST + step.other)
        } else {
            there
        };
        self.push(step.cpu, Event::Entry { table, index, old, new });
    }

    fn tlbi(&mut self, step: &Step, scope: Scope) -> u64 {
        self.issued += 1;
        let (id, vmid) = (self.issued, self.vmid(step));
        self.push(step.cpu, Event::Tlbi { id, vmid, scope });
        id
    }

    fn vmid(&self, step: &Step) -> u16 {
        if !step.is_odd
            && let Some(vmid) = Self::one(self.taken.keys().copied(), step.other)
        {
            return vmid;
        }
        step.other as u16 % VMIDS + 1
    }

    /// The guest frame at which an access is made, and the frame that a walk for it comes to.
    fn walk(&self, top: u64, step: &Step) -> (u64, u64) {
        let levels = self.roots.get(&top).copied().unwrap_or(1);
        let (mut table, mut gfn) = (top, 0);
        for level in (0..levels).rev() {
            let index = if level == 0 { step.index } else { step.index & u32::from(step.value) };
            gfn += u64::from(index) << (9 * level);
            let Some(bits) = self.entries.get(&(table, index)) else { break };
            table = self.frame_of(*bits);
        }
        (gfn, table)
    }

    fn range(step: &Step) -> Scope {
        let (first, stride) = match step.value {
            0..3 => (u64::from(step.index), 1),
            3..6 => (0, 1),
            _ => (u64::from(step.index) << 9, 512),
        };
        let reach = [Reach::Any, Reach::Sizes, Reach::Leaves][step.frame as usize % 3];
        let end = first + stride * if step.value < 3 { 1 } else { 600 };
        Scope::Range { first, end, stride, reach }
    }

    /// A frame that is given out and that nothing leads to; it is given out first, where there is none.
    fn fresh(&mut self, step: &Step, number: u64) -> u64 {
        if step.is_odd {
            return FIRST + number;
        }
        if self.unlinked(number).is_none()
            && let Some(frame) = self.free(number)
        {
            self.push(step.cpu, Event::Give { frame, order: 0 });
        }
        self.unlinked(number).unwrap_or(FIRST + number)
    }

    fn root(&mut self, step: &Step) {
        let Step { cpu, value, way, frame, is_odd, .. } = *step;
        let top = self.fresh(step, frame);
        let family = self.family.unwrap_or(Family::Ept);
        let family = if is_odd && way < 4 { Family::Npt } else { family };
        let levels = [2, 1, 2, 3][value as usize % 4];
        let is_pair = way == 11 && (is_odd || self.given.contains(&(top + 1)));
        self.push(cpu, Event::Root { top, order: u32::from(is_pair), levels, family });
    }

    /// A root, which is made first where there is none.
    fn some_root(&mut self, step: &Step) -> u64 {
        if step.is_odd {
            return FIRST + step.frame;
        }
        if self.roots.is_empty() {
            self.root(step);
        }
        self.root_of(step).unwrap_or(FIRST + step.frame)
    }

    /// A CPU that is in a guest, and the VMID.
    fn stay(&self, step: &Step) -> (u32, u16) {
        let stays = self.inside.iter().map(|(tlb, vmid)| (*tlb, *vmid));
        let stay = Self::one(stays, step.other).filter(|_| !step.is_odd);
        stay.unwrap_or((step.cpu, self.vmid(step)))
    }

    fn enter(&mut self, step: &Step) {
        let Step { cpu, is_odd, way, other, .. } = *step;
        if !is_odd && self.inside.get(&cpu).is_some_and(|_| way > 1) {
            return;
        }
        let mut top = self.some_root(step);
        let own = self.taken.iter().find(|(_, of)| **of == top).map(|(vmid, _)| *vmid);
        let vmid = match own {
            Some(vmid) if way > 1 => vmid,
            _ => other as u16 % VMIDS + 1,
        };
        if let Some(of) = self.taken.get(&vmid).filter(|_| !is_odd) {
            top = *of;
        } else if !is_odd {
            self.taken.insert(vmid, top);
            let generation = self.generation;
            self.push(cpu, Event::VmidTake { vmid, generation });
        }
        if way > 2 {
            self.push(cpu, Event::Barrier { kind: Barrier::Walks });
        }
        self.push(cpu, Event::Enter { tlb: cpu, top, vmid });
    }

    /// The entries that lead somewhere.
    fn present(&self) -> Vec<(u64, u32)> {
        self.entries.iter().filter(|(_, bits)| **bits & 7 != 0).map(|(word, _)| *word).collect()
    }

    /// Takes away what an entry has, and may have that invalidated, and the frame be free.
    fn take_away(&mut self, step: &Step) {
        let Step { cpu, value, way, frame, other, .. } = *step;
        let Some((table, index)) = Self::one(self.present(), frame) else { return };
        let old = self.entries.get(&(table, index)).copied().unwrap_or(0);
        let new = self.value(value & 1, 0);
        self.push(cpu, Event::Entry { table, index, old, new });
        if way & 1 != 0 {
            self.push(cpu, Event::Barrier { kind: Barrier::Walks });
        }
        if way & 2 != 0 {
            let by = if way < 6 { Scope::All } else { Self::range(step) };
            let id = self.tlbi(&Step { is_odd: other == 0, ..*step }, by);
            self.push(cpu, Event::Sync { id });
        }
        let frame = self.frame_of(old);
        if way & 4 != 0 && self.given.contains(&frame) {
            self.push(cpu, Event::Free { frame, order: 0 });
            if value > 3 {
                self.push(cpu, Event::Give { frame, order: 0 });
            }
        }
    }

    fn vmids(&mut self, step: &Step) {
        let Step { cpu, way, .. } = *step;
        let (vmid, generation) = (self.vmid(step), self.generation);
        match way {
            0..3 => {
                let top = self.some_root(step);
                self.taken.insert(vmid, top);
                self.push(cpu, Event::VmidTake { vmid, generation });
            }
            3..6 => self.push(cpu, Event::VmidGive { vmid }),
            6..9 => {
                let generation = generation + 1;
                self.push(cpu, Event::VmidKeep { vmid, generation });
                self.push(cpu, Event::Generation { generation });
            }
            9 => self.push(cpu, Event::VmidKeep { vmid, generation: generation + 1 }),
            _ => self.push(cpu, Event::Generation { generation: generation + 1 }),
        }
    }

    fn invalidate(&mut self, step: &Step) {
        let Step { cpu, way, is_odd, .. } = *step;
        match way {
            0..3 => drop(self.tlbi(step, Self::range(step))),
            3..6 => {
                let id = self.tlbi(step, Self::range(step));
                self.push(cpu, Event::Sync { id });
            }
            6..9 => {
                let id = self.tlbi(step, Scope::All);
                self.push(cpu, Event::Sync { id });
            }
            9 => {
                self.issued += 1;
                self.push(cpu, Event::TlbiEverything { id: self.issued });
            }
            _ => self.push(cpu, Event::Sync { id: self.issued.saturating_sub(u64::from(is_odd)) }),
        }
    }

    fn caches(&mut self, step: &Step) {
        let Step { cpu, frame, value, .. } = *step;
        let (frame, count) = (FIRST + frame, u64::from(value & 1) + 1);
        let event = match value {
            0..4 => Event::Clean { frame, count },
            4..7 => Event::Flush { frame, count },
            _ => Event::Fetch { frame, count },
        };
        self.push(cpu, event);
    }

    fn fill(&mut self, step: &Step) {
        let Step { cpu, frame, index, value, way, other, .. } = *step;
        let table = self.fresh(step, frame);
        let (index, count) = [(0, 512), (index, 1), (0, 2)][way as usize % 3];
        let value = self.value(value, FIRST + other);
        let step = u64::from(way > 6) << 12;
        self.push(cpu, Event::Fill { table, index, count, value, step });
    }

    fn access(&mut self, step: &Step) {
        let (tlb, vmid) = self.stay(step);
        let top = self.taken.get(&vmid).copied().unwrap_or(FIRST);
        let (gfn, walked) = self.walk(top, step);
        let frame = if step.is_odd { FIRST + step.frame } else { walked };
        let write = step.value & 4 != 0;
        self.push(tlb, Event::Access { tlb, vmid, gfn, frame, write });
    }

    fn step(&mut self, step: &Step) {
        let Step { cpu, frame, other, value, index, way, is_odd, .. } = *step;
        let any = FIRST + frame;
        match step.kind {
            0..5 => {
                let frame = self.free(frame).filter(|_| !is_odd).unwrap_or(any);
                let is_pair = way == 11 && (is_odd || !self.given.contains(&(frame + 1)));
                self.push(cpu, Event::Give { frame, order: u32::from(is_pair) });
            }
            5..7 => {
                let given = Self::one(self.given.iter().copied(), frame).filter(|_| !is_odd);
                let frame = given.unwrap_or(any);
                let is_pair = way == 11 && (is_odd || self.given.contains(&(frame + 1)));
                self.push(cpu, Event::Free { frame, order: u32::from(is_pair) });
            }
            7..10 => self.root(step),
            10 => {
                let top = self.root_of(step).filter(|_| !is_odd).unwrap_or(any);
                self.push(cpu, Event::RootGone { top });
            }
            11..14 => {
                let table = self.table(step);
                let is_table = value & !1 == 2;
                let frame = if is_table { self.fresh(step, other) } else { FIRST + other };
                self.entry(step, table, self.value(value, frame));
            }
            // Links a table.
            14..18 => {
                let table = self.table(step);
                let below = self.fresh(step, other);
                self.entry(step, table, self.value(2, below));
            }
            // Maps a page.
            18..21 => {
                let table = self.table(step);
                let page = self.fresh(step, other);
                self.entry(step, table, self.value(value | 4, page));
            }
            21..25 => self.take_away(step),
            25..28 => self.fill(step),
            28 => {
                let table = self.table(step);
                let old = self.entries.get(&(table, index)).copied().unwrap_or(0);
                let new = old | self.family.map_or(0, |family| marks(family, value));
                self.push(cpu, Event::Mark { table, index, old, new });
            }
            29..31 => self.vmids(step),
            31..35 => self.enter(step),
            35..38 => {
                let (tlb, vmid) = self.stay(step);
                self.push(tlb, Event::Leave { tlb, vmid });
            }
            38 => {
                let kind = if is_odd { Barrier::Memory } else { Barrier::Walks };
                self.push(cpu, Event::Barrier { kind });
            }
            39..42 => self.invalidate(step),
            42 => self.caches(step),
            _ => self.access(step),
        }
    }
}

/// What hardware sets in an entry by itself.
fn marks(family: Family, value: u8) -> u64 {
    match family {
        Family::Arm | Family::ArmFwb => 1 << 10,
        Family::Ept => u64::from(value & 3) << 8,
        Family::Npt => u64::from(value & 3) << 5,
        Family::RiscV => u64::from(value & 3) << 6,
    }
}
