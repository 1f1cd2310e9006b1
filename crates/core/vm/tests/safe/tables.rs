//! Calls on a VM's tables that the embedder need not make.

use std::ops::Range;

use proptest::prelude::*;

use mayfly_vm::memslot::Gfn;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::platform::memory::Kept;
use mayfly_vm::stage2::{Invalidation, Permissions, Role, Slice, Tables};

use crate::host::{Host, returns};
use crate::step::{PAGES, PLACES};

/// A call on tables, for frames that it may be or not be of.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    ZapEach { at: usize, panics: bool },
    ZapPicked { at: usize, panics: bool },
    InvalidatePicked { pages: u64, panics: bool },
    InvalidateAll,
    ZapRole { at: usize, role: Role, tables: Tables },
    ProtectMarked { panics: bool },
    TakeWritten { panics: bool },
    EachMapped { panics: bool },
    FindPage { role: Role },
    FindRoot { role: Role },
    Begin { many: bool, forgets: bool, panics: bool },
    End { at: usize },
    ChangeAndInvalidate { panics: bool },
    Leave { has_handle: bool },
    Collect,
    EnsureRoot { role: Role },
    Look { at: usize },
    CameOut,
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let (at, panics) = (any::<usize>(), prop::bool::weighted(0.25));
    let role = (0..2_u8).prop_map(|number| Role::new(number).unwrap());
    let tables = prop_oneof![Just(Tables::Free), Just(Tables::Keep)];
    prop_oneof![
        (at, panics).prop_map(|(at, panics)| Step::ZapEach { at, panics }),
        (at, panics).prop_map(|(at, panics)| Step::ZapPicked { at, panics }),
        (0..2 * PAGES, panics).prop_map(|(pages, panics)| Step::InvalidatePicked { pages, panics }),
        Just(Step::InvalidateAll),
        (at, role.clone(), tables).prop_map(|(at, role, tables)| Step::ZapRole {
            at,
            role,
            tables
        }),
        panics.prop_map(|panics| Step::ProtectMarked { panics }),
        panics.prop_map(|panics| Step::TakeWritten { panics }),
        panics.prop_map(|panics| Step::EachMapped { panics }),
        role.clone().prop_map(|role| Step::FindPage { role }),
        role.clone().prop_map(|role| Step::FindRoot { role }),
        (any::<bool>(), prop::bool::weighted(0.1), panics)
            .prop_map(|(many, forgets, panics)| Step::Begin { many, forgets, panics }),
        at.prop_map(|at| Step::End { at }),
        panics.prop_map(|panics| Step::ChangeAndInvalidate { panics }),
        any::<bool>().prop_map(|has_handle| Step::Leave { has_handle }),
        Just(Step::Collect),
        role.prop_map(|role| Step::EnsureRoot { role }),
        at.prop_map(|at| Step::Look { at }),
        Just(Step::CameOut),
    ]
}

/// A callback that panics where it is to.
fn called(panics: bool) {
    assert!(!panics, "as it was told to");
}

/// A word of marks of every third frame from `first` on; in no order, and of some far beyond.
fn word_of_marks(first: Gfn, index: usize, panics: bool) -> (Gfn, u64) {
    called(panics);
    let there = Gfn::new(first.get().saturating_add(64 * index as u64));
    match index % 7 {
        0 => (Gfn::new(0), u64::MAX),
        1 => (Gfn::new(u64::MAX), 1),
        2 => (there, 0),
        _ => (there, u64::MAX / 3),
    }
}

/// Pages that are picked: two of four; and from some on, one that is no further on, or a range that ends before it begins.
fn odd(from: u64, panics: bool) -> Range<u64> {
    called(panics);
    match from % 8 {
        5 => 0..1,
        6 => Range { start: from + 2, end: from },
        _ => from.next_multiple_of(4)..from.next_multiple_of(4) + 2,
    }
}

impl Host {
    fn zap_picked(&self, vm: usize, gfns: Range<Gfn>, at: usize, panics: bool) {
        let Some((of, shown)) = self.announced(at) else { return };
        let next = |gfn: Gfn| {
            let Range { start, end } = odd(gfn.get(), panics);
            Gfn::new(start)..Gfn::new(end)
        };
        let stage2 = self.vms[vm].vm.stage2();
        let slice = Slice { entries: 3, ..Slice::default() };
        let zapped = returns(|| stage2.zap_picked(shown, gfns, slice, next));
        assert!(!zapped || *of == Some(vm), "another VM's announcement is believed");
    }

    pub(crate) fn make_on_roots(&mut self, vm: usize, gfns: Range<Gfn>, step: &Step) {
        let slice = Slice { entries: 3, ..Slice::default() };
        let stage2 = self.vms[vm].vm.stage2();
        match *step {
            Step::ZapEach { at, panics } => {
                let Some((of, shown)) = self.announced(at) else { return };
                let each = |_, _, _| called(panics);
                let zapped = returns(|| stage2.zap_each(shown, gfns, slice, each));
                assert!(!zapped || *of == Some(vm), "another VM's announcement is believed");
            }
            Step::ZapPicked { at, panics } => self.zap_picked(vm, gfns, at, panics),
            Step::InvalidatePicked { pages, panics } => {
                let (vm, from) = (&self.vms[vm].vm, self.pieces[0]);
                let next = |page| odd(page, panics);
                returns(|| drop(vm.invalidate_picked(from, pages * PAGE_SIZE, next)));
            }
            Step::InvalidateAll => {
                // Elsewhere it would wait for a `Retiring` that was forgotten.
                if cfg!(debug_assertions) || !self.vms[vm].is_stuck {
                    returns(|| drop(self.vms[vm].vm.invalidate_all()));
                }
            }
            Step::ZapRole { at, role, tables } => {
                let Some((of, shown)) = self.announced(at) else { return };
                let zapped = returns(|| stage2.zap_role(role, shown, gfns, tables, slice));
                assert!(!zapped || *of == Some(vm), "another VM's announcement is believed");
            }
            Step::ProtectMarked { panics } => {
                let word = |index| word_of_marks(gfns.start, index, panics);
                returns(|| stage2.write_protect_marked(gfns.clone(), slice, 100, word));
            }
            Step::TakeWritten { panics } => {
                returns(|| stage2.take_written(gfns, slice, |_, _| called(panics)));
            }
            Step::EachMapped { panics } => {
                returns(|| stage2.each_mapped(gfns, slice, |_, _| called(panics)));
            }
            Step::FindPage { role } => {
                let mut left = gfns.clone();
                let found = stage2.find_page(role, &mut left, slice);
                assert!(found.is_none_or(|gfn| gfns.contains(&gfn)));
            }
            Step::FindRoot { role } => {
                let section = self.vms[vm].vm.srcu().read_lock();
                let Some(root) = stage2.find_root(role, &section) else { return };
                let pfn = Pfn::new(gfns.start.get());
                let most = gfns.end.get().saturating_sub(gfns.start.get());
                let count = root.maps_to(gfns.start, pfn, most, Permissions::READ, &section);
                assert!(count <= most);
                // Of nothing that is granted.
                assert_eq!(root.collapse(slice, [const { None }; 3]), 0);
                let is_mapped = root.translate(gfns.start, &section).is_some();
                assert_eq!((root.role(), root.role().get()), (role, role.get()));
                stage2.may_be_in_use(gfns.start);
                assert!(!is_mapped || root.depth(gfns.start, &section).pages() > 0);
                if self.vms[vm].open == 0 {
                    root.settles(gfns.start, Permissions::READ, &section);
                }
            }
            Step::Begin { many, forgets, panics } => {
                let Some(began) = self.begin(vm, gfns, many, panics) else { return };
                if forgets {
                    std::mem::forget(began);
                } else {
                    let announcement = began.leave();
                    self.announcements.push((Some(vm), announcement));
                }
                self.vms[vm].open += 1;
            }
            Step::End { at } => {
                self.end_announced(vm, at, |vm, it| vm.stage2().end_invalidation(it));
            }
            Step::ChangeAndInvalidate { panics } => {
                if self.vms[vm].open == 0 {
                    let change = || called(panics);
                    returns(|| drop(stage2.change_slots_and_invalidate(&gfns, change)));
                }
            }
            Step::Leave { has_handle } => {
                let Ok(kept) = Kept::try_new(vec![1_u8; 64]) else { return };
                let handle = has_handle.then(|| kept.handle());
                stage2.leave(kept);
                assert!(handle.is_none_or(|handle| handle.iter().all(|byte| *byte == 1)));
            }
            Step::Collect => drop(stage2.collect_tables()),
            Step::EnsureRoot { role } => drop(stage2.ensure_root(role)),
            Step::Look { at } => {
                let seen = stage2.sample();
                assert!(stage2.is_current(&gfns, seen) || self.vms[vm].open > 0);
                if let Some((of, shown)) = self.announced(at) {
                    let believed = stage2.is_announced(shown, &gfns);
                    assert!(!believed || *of == Some(vm) && stage2.is_invalidating(&gfns));
                }
                let mut owed = stage2.owing_nothing();
                owed.add(stage2.owing_nothing());
                assert!(owed.is_paid());
                owed.pay();
                let anothers = self.vms[1 - vm].vm.stage2().owing_nothing();
                returns(|| stage2.owing_nothing().add(anothers));
                let _ = (stage2.frames(), stage2.vcpu(), stage2.invalidation_waiters());
            }
            Step::CameOut => stage2.came_out(),
        }
    }

    /// Announces a change of one range, or of two, where the second call panics.
    fn begin(
        &self,
        vm: usize,
        gfns: Range<Gfn>,
        many: bool,
        panics: bool,
    ) -> Option<Invalidation<'_>> {
        let stage2 = self.vms[vm].vm.stage2();
        let mut began = None;
        returns(|| {
            began = Some(if many {
                stage2.begin_invalidation_of(|each| {
                    each(gfns.clone());
                    called(panics);
                    each(Gfn::new(PLACES[0])..Gfn::new(PLACES[0] + PAGES));
                })
            } else {
                stage2.begin_invalidation(&gfns)
            });
        });
        began
    }
}
