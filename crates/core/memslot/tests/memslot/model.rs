//! Memslots against a list that is searched from end to end.

use mayfly_memslot::{
    AddressSpace, Edit, Error, Flags, Gfn, Gpa, Hva, LastHit, MemSlots, Region, SlotId,
};
use mayfly_srcu::Srcu;
use proptest::prelude::*;

use crate::common::domain;

const PAGE: u128 = 4096;
const READONLY: u32 = 2;

/// What KVM would do, on numbers that do not overflow.
#[derive(Clone, Debug)]
struct Naive {
    list: Vec<Region<Hva>>,
    /// The first frame that guests cannot address.
    limit: u64,
}

fn first_gfn(region: &Region<Hva>) -> u128 {
    u128::from(region.gpa.get()) / PAGE
}

fn end_gfn(region: &Region<Hva>) -> u128 {
    first_gfn(region) + u128::from(region.size) / PAGE
}

impl Naive {
    fn set(&mut self, region: &Region<Hva>, private: bool) -> Result<Option<&'static str>, Error> {
        let Region { slot, flags, gpa, size, backing } = *region;
        let (index, position) = (slot.index, backing.get());
        if index > 32766 || private != (index >= 32764) {
            return Err(Error::SlotOutOfRange { slot });
        }
        if private && flags.bits() != 0 {
            return Err(Error::PrivateFlags { flags });
        }
        if flags.bits() > 3 {
            let flags = Flags::from_bits_retain(flags.bits() & !3);
            return Err(Error::UnknownFlags { flags });
        }
        if u128::from(size) % PAGE != 0 {
            return Err(Error::MisalignedSize { size });
        }
        if u128::from(gpa.get()) % PAGE != 0 {
            return Err(Error::MisalignedGpa { gpa });
        }
        if u128::from(position) % PAGE != 0 {
            return Err(Error::MisalignedBacking { position });
        }
        if u128::from(position) + u128::from(size) >= 1 << 64 {
            return Err(Error::BackingTooShort { position, size });
        }
        if u128::from(gpa.get()) + u128::from(size) >= 1 << 64 {
            return Err(Error::GpaWraps { gpa, size });
        }
        if !private && size >> 12 >= 1 << 31 {
            return Err(Error::TooManyPages { pages: size >> 12 });
        }
        let old = self.list.iter().position(|old| old.slot == slot);
        if size == 0 {
            self.list.remove(old.ok_or(Error::NoSuchSlot { slot })?);
            return Ok(Some("delete"));
        }
        if let Some(old) = old.map(|old| &self.list[old]) {
            if position != old.backing.get() {
                return Err(Error::BackingChanged { slot, has: old.backing.get(), position });
            }
            if size != old.size {
                return Err(Error::SizeChanged { slot, has: old.size, size });
            }
            if flags.bits() & READONLY != old.flags.bits() & READONLY {
                return Err(Error::ReadOnlyChanged { slot });
            }
        }
        let other = self
            .list
            .iter()
            .filter(|other| other.slot.space == slot.space && other.slot != slot)
            .filter(|other| {
                first_gfn(other) < end_gfn(region) && first_gfn(region) < end_gfn(other)
            })
            .min_by_key(|other| first_gfn(other));
        if let Some(other) = other {
            return Err(Error::Overlap { slot, other: other.slot });
        }
        let stays = old.is_some_and(|old| self.list[old].gpa == gpa);
        if !stays && end_gfn(region) > u128::from(self.limit) {
            let limit = Gfn::new(self.limit);
            return Err(Error::GpaOutOfRange { gpa, size, limit });
        }
        let Some(old) = old else {
            self.list.push(*region);
            return Ok(Some("create"));
        };
        let was = std::mem::replace(&mut self.list[old], *region);
        Ok(match (was.gpa == gpa, was.flags == flags) {
            (true, true) => None,
            (true, false) => Some("flags"),
            (false, _) => Some("move"),
        })
    }

    /// The slot that has the frame, and the address of its memory.
    fn find(&self, space: AddressSpace, gfn: u64) -> Option<(SlotId, u64)> {
        let gfn = u128::from(gfn);
        let region = self
            .list
            .iter()
            .filter(|region| region.slot.space == space)
            .find(|region| (first_gfn(region)..end_gfn(region)).contains(&gfn))?;
        let offset = (gfn - first_gfn(region)) * PAGE;
        Some((region.slot, region.backing.get() + offset as u64))
    }

    /// The slots that have memory of the `bytes` bytes at `from`, with the frames that have some of it.
    fn backed_by(&self, space: AddressSpace, from: u64, bytes: u64) -> Vec<(SlotId, u64, u64)> {
        let (from, to) = (u128::from(from), u128::from(from) + u128::from(bytes));
        let mut found = Vec::new();
        for region in self.list.iter().filter(|region| region.slot.space == space) {
            let page = |page: u128| u128::from(region.backing.get()) + page * PAGE;
            let pages: Vec<_> = (0..u128::from(region.size) / PAGE)
                .filter(|&nr| page(nr) < to && from < page(nr + 1) && bytes > 0)
                .collect();
            if let (Some(first), Some(last)) = (pages.first(), pages.last()) {
                let gfn = |page| (first_gfn(region) + page) as u64;
                found.push((region.slot, gfn(*first), gfn(*last) + 1));
            }
        }
        found.sort();
        found
    }
}

fn name(edit: &Edit<Hva>) -> &'static str {
    match edit {
        Edit::Create { .. } => "create",
        Edit::Delete { .. } => "delete",
        Edit::Move { .. } => "move",
        Edit::Flags { .. } => "flags",
    }
}

/// A number of pages in bytes, now and then not quite, or out of all bounds.
fn bytes(pages: std::ops::Range<u64>) -> impl Strategy<Value = u64> {
    prop_oneof![
        30 => pages.prop_map(|pages| pages * 4096),
        1 => any::<u64>(),
        1 => (0..u64::MAX / 4096).prop_map(|pages| pages * 4096),
        1 => prop_oneof![Just(1), Just(4095), Just(1 << 43), Just(u64::MAX), Just(u64::MAX - 4095)],
    ]
}

fn regions() -> impl Strategy<Value = (Region<Hva>, bool)> {
    let index = prop_oneof![
        40 => 0..12_u16,
        3 => 32762..=32768_u16,
        1 => any::<u16>(),
    ];
    let flags = prop_oneof![
        20 => Just(0),
        10 => Just(1),
        3 => Just(2),
        3 => Just(3),
        1 => any::<u32>(),
    ];
    // Few distinct memories and sizes, so that moves and changes of flags often are of an existing slot.
    let size = prop_oneof![2 => Just(0), 8 => bytes(1..5)];
    (index, 0..20, flags, bytes(0..40), size, bytes(0..6), 0..20).prop_map(
        |(index, smm, flags, gpa, size, backing, private)| {
            let space = if smm == 0 { AddressSpace::Smm } else { AddressSpace::Main };
            let region = Region {
                slot: SlotId { space, index },
                flags: Flags::from_bits_retain(flags),
                gpa: Gpa::new(gpa),
                size,
                backing: Hva::new(backing),
            };
            (region, private == 0 || index >= 32764 && private < 15)
        },
    )
}

/// Where what guests can address ends, if it does: among what is set, or just past it.
fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 1..50_u64, Just(1 << 28)]
}

/// What to do to the slots: set one as given, or change one that is there.
#[derive(Clone, Debug)]
enum Step {
    Set(Region<Hva>, bool),
    Change(prop::sample::Index, Change),
}

#[derive(Clone, Debug)]
enum Change {
    Move(u64),
    Log,
    Delete,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![
        2 => (0..40_u64).prop_map(Change::Move),
        1 => Just(Change::Log),
        1 => Just(Change::Delete),
    ];
    let step = prop_oneof![
        3 => regions().prop_map(|(region, private)| Step::Set(region, private)),
        2 => (any::<prop::sample::Index>(), change).prop_map(|(slot, change)| Step::Change(slot, change)),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 15 } else { 60 })
}

impl Step {
    fn region(&self, list: &[Region<Hva>]) -> Option<(Region<Hva>, bool)> {
        let (slot, change) = match self {
            Self::Set(region, private) => return Some((*region, *private)),
            Self::Change(slot, change) => (slot, change),
        };
        let mut region = *(!list.is_empty()).then(|| slot.get(list))?;
        match change {
            Change::Move(gfn) => region.gpa = Gpa::new(gfn * 4096),
            Change::Log => region.flags ^= Flags::LOG_DIRTY_PAGES,
            Change::Delete => region.size = 0,
        }
        Some((region, region.slot.index >= 32764))
    }
}

/// That both say the same about everything near what was set.
fn agree(
    slots: &MemSlots<Hva>,
    domain: &Srcu,
    naive: &Naive,
    last: &mut LastHit,
) -> Result<(), TestCaseError> {
    let section = domain.read_lock();
    for space in [AddressSpace::Main, AddressSpace::Smm] {
        let snapshot = slots.load(space, &section);
        let mut gfns: Vec<u64> = (0..50).collect();
        for region in &naive.list {
            let (first, end) = (first_gfn(region) as u64, end_gfn(region) as u64);
            gfns.extend([first.wrapping_sub(1), first, end - 1, end]);
        }
        for gfn in gfns {
            let expected = naive.find(space, gfn);
            let gfn = Gfn::new(gfn);
            for slot in [snapshot.find(gfn), snapshot.find_near(gfn, last)] {
                let found = slot.map(|slot| (slot.id(), slot.backing_of(gfn).unwrap().get()));
                prop_assert_eq!(found, expected);
            }
        }
        let small = Naive {
            list: naive.list.iter().filter(|region| region.size <= 1 << 20).copied().collect(),
            limit: naive.limit,
        };
        for from in (0..12).map(|half| half * 2048) {
            for bytes in [0, 1, 2048, 4096, 4097, 10_000] {
                let mut found: Vec<_> = snapshot
                    .backed_by(Hva::new(from), bytes)
                    .filter(|(slot, _)| slot.size() <= 1 << 20)
                    .map(|(slot, gfns)| (slot.id(), gfns.start.get(), gfns.end.get()))
                    .collect();
                found.sort_unstable();
                prop_assert_eq!(found, small.backed_by(space, from, bytes));
            }
        }
        let count = naive.list.iter().filter(|region| region.slot.space == space).count();
        prop_assert_eq!(snapshot.len(), count);
        prop_assert_eq!(snapshot.backed_by(Hva::new(0), u64::MAX).count(), count);
    }
    Ok(())
}

/// Fewer under Miri, which also has no files to keep failures in.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2) }
    } else {
        ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn slots_behave_as_a_naive_list_does(steps in steps(), limit in limits()) {
        let (host, domain) = domain();
        let slots = MemSlots::try_with_smm(host, &domain).unwrap();
        let slots = if limit == u64::MAX { slots } else { slots.below(Gfn::new(limit)) };
        let mut naive = Naive { list: Vec::new(), limit };
        let mut last = LastHit::default();
        for step in steps {
            let Some((region, private)) = step.region(&naive.list) else { continue };
            let expected = naive.set(&region, private);
            let done = if private { slots.set_private(&region) } else { slots.set(&region) };
            prop_assert_eq!(done.map(|edit| edit.as_ref().map(name)), expected);
            agree(&slots, &domain, &naive, &mut last)?;
        }
    }
}
