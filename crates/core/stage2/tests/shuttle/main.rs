//! Stage 2 under shuttle: more threads and longer lives than loom can go through, in schedules drawn at random and by
//! probabilistic concurrency testing (PCT). Sequentially consistent, so this is about schedules; loom is about memory
//! orders.
//!
//! Guests run on CPUs with TLBs, walk the tables as hardware does, and fault; the host takes frames away, slots come
//! and go, roots are replaced. A guest never uses a frame that was taken away, nobody reads a table that was freed, no
//! write goes unlogged, all that was given is given back, and a thread that is never woken is a deadlock, which shuttle
//! reports with the schedule that led there.

#![cfg(mayfly_shuttle)]

mod cpus;
mod guest;
mod host;
#[path = "../model/mod.rs"]
#[allow(dead_code)]
mod model;
mod sharing;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use mayfly_platform::address::Gfn;
use mayfly_platform::check_schedules;
use mayfly_stage2::{Leaf, Level, Role, Slice, Tables};

use cpus::Cpus;
use guest::Guest;
use host::{BLOCK, Host, PAGES};
use model::granted::MapsAny;
use model::{Tiny, gfn, gfns, readable, writable};
use sharing::{merge, merge_owing, own, pay, unshare};

type Vm<const BREAK: bool> = model::Vm<Tiny<BREAK>, Cpus>;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(1_000, 500, model);
}

/// Frames for tables: more than any model takes.
const FRAMES: usize = 400;

/// Slices so short that everything takes several.
const SHORT: Slice = Slice { entries: 3, time: Duration::from_secs(1) };

/// One VM, and its host.
struct Machine<const BREAK: bool> {
    vm: Arc<Vm<BREAK>>,
    host: Arc<Host>,
    threads: Vec<JoinHandle<()>>,
}

impl<const BREAK: bool> Machine<BREAK> {
    fn with_guests(guests: usize) -> Self {
        let vm = Arc::new(Vm::new(FRAMES, Cpus::new(guests)));
        let mut machine = Self { vm, host: Arc::new(Host::new()), threads: Vec::new() };
        for cpu in 0..guests {
            let guest = Guest::new(&machine, cpu);
            machine.threads.push(thread::spawn(move || guest.run(6)));
        }
        machine
    }

    fn spawn(&mut self, life: impl FnOnce(&Vm<BREAK>, &Host) + Send + 'static) {
        let (vm, host) = (Arc::clone(&self.vm), Arc::clone(&self.host));
        self.threads.push(thread::spawn(move || life(&vm, &host)));
    }

    /// Whatever is mapped is what the host has there, and everything is given back in the end.
    fn end(mut self) {
        self.join();
        if let Ok(root) = self.vm.stage2.root(Role::MAIN, &self.vm.domain.read_lock()) {
            let section = self.vm.domain.read_lock();
            for page in 0..PAGES {
                if let Some((level, leaf)) = root.translate(gfn(page), &section) {
                    let pfn = leaf.pfn.get() + page % level.pages();
                    assert_eq!(pfn, self.host.pfn(page), "stale");
                    let is_writable = leaf.permissions == writable(0).permissions;
                    assert!(!is_writable || !self.host.is_shared(page), "shared, and writable");
                }
            }
        }
        self.vm.end();
    }

    fn join(&mut self) {
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A page, a block, or more.
fn some_pages() -> Range<u64> {
    [5..6, 6..7, 4..8, 0..8, 0..PAGES][thread_rng().gen_range(0..5)].clone()
}

fn frames(pages: &Range<u64>) -> Range<Gfn> {
    gfn(pages.start)..gfn(pages.end)
}

fn some_tables() -> Tables {
    if thread_rng().gen_bool(0.5) { Tables::Free } else { Tables::Keep }
}

/// The host puts other frames behind some pages, and those of before to other use.
fn invalidate<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host) {
    let pages = some_pages();
    let invalidation = vm.stage2.begin_invalidation(&frames(&pages));
    let old = host.replace(pages.clone());
    vm.stage2.zap(&invalidation, frames(&pages), some_tables(), SHORT);
    host.withdraw(&old);
}

/// A slot is deleted, and comes back with other memory.
fn replace_slot<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host, all_roots: bool) {
    let block = thread_rng().gen_range(0..2);
    let pages = block * BLOCK..(block + 1) * BLOCK;
    let delete = || host.set_slot(block, false);
    let ((), announced) = vm.stage2.change_slots_and_invalidate(&frames(&pages), delete);
    if all_roots {
        let retiring = vm.stage2.replace_roots().unwrap();
        vm.world.tlb.kick_all();
        retiring.finish();
    } else {
        vm.stage2.zap(&announced, frames(&pages), some_tables(), SHORT);
    }
    drop(announced);
    host.withdraw(&host.replace(pages.clone()));
    vm.stage2.change_slots(&frames(&pages), || host.set_slot(block, true));
}

/// `model`, with entries changed in place, and with break-before-make.
macro_rules! in_both_ways {
    ($name:ident, $model:ident) => {
        #[test]
        fn $name() {
            check($model::<false>);
            check($model::<true>);
        }
    };
}

fn faults<const BREAK: bool>() {
    Machine::<BREAK>::with_guests(4).end();
}
in_both_ways!(guests_that_fault_split_and_collapse_side_by_side_find_their_own_memory, faults);

fn invalidations<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    for _ in 0..2 {
        machine.spawn(|vm, host| (0..2).for_each(|_| invalidate(vm, host)));
    }
    machine.end();
}
in_both_ways!(no_guest_uses_what_the_host_has_taken_away, invalidations);

fn slots<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    machine.spawn(|vm, host| (0..2).for_each(|_| replace_slot(vm, host, false)));
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.end();
}
in_both_ways!(no_guest_uses_the_memory_of_a_slot_that_is_gone, slots);

/// With the reclaimer at work, and a short supply of VMIDs.
fn roots<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    let reclaimer = {
        let reclaimer = Arc::clone(&machine.vm.config.reclaimer);
        thread::spawn(move || reclaimer.serve(SHORT))
    };
    machine.spawn(|vm, host| (0..2).for_each(|_| replace_slot(vm, host, true)));
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.join();
    machine.vm.config.reclaimer.stop();
    reclaimer.join().unwrap();
    machine.end();
}
in_both_ways!(no_guest_uses_an_old_root_when_all_were_replaced, roots);

fn readers<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(1);
    for _ in 0..2 {
        let reader = machine.vm.domain.reader().unwrap();
        machine.spawn(move |vm, host| {
            for page in [5, 0, 6] {
                let section = reader.lock();
                let Some(root) = vm.stage2.roots(&section).next() else { continue };
                if let Some((level, leaf)) = root.translate(gfn(page), &section) {
                    let pfn = leaf.pfn.get() + page % level.pages();
                    assert!(pfn % PAGES == page && pfn <= host.pfn(page));
                }
            }
        });
    }
    machine.spawn(|vm, host| (0..3).for_each(|_| invalidate(vm, host)));
    machine.end();
}
in_both_ways!(whoever_walks_while_others_zap_reads_no_table_that_was_freed, readers);

fn dirty_log<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(3);
    machine.spawn(|vm, host| {
        vm.stage2.change_slots(&gfns(0, PAGES), || host.logging.store(true, Ordering::Relaxed));
        vm.stage2.write_protect(gfns(0, PAGES), SHORT, |_, _| ());
        host.all_logged.store(true, Ordering::Relaxed);
    });
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.end();
}
in_both_ways!(no_write_goes_unlogged_after_write_protection, dirty_log);

/// Blocks are split by somebody else than those who write to them, and some come back.
fn splits<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    for _ in 0..2 {
        machine.spawn(|vm, _| {
            for _ in 0..2 {
                // Without memory some stay.
                let _ = vm.stage2.split_blocks(frames(&some_pages()), SHORT);
            }
        });
    }
    machine.spawn(|vm, host| (0..2).for_each(|_| invalidate(vm, host)));
    machine.spawn(|vm, _| vm.stage2.write_protect(gfns(0, PAGES), SHORT, |_, _| ()));
    machine.end();
}
in_both_ways!(blocks_are_split_among_faults_and_invalidations_and_nobody_notices, splits);

fn aging<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(3);
    machine.spawn(|vm, _| {
        for _ in 0..3 {
            vm.stage2.age(gfns(0, PAGES), SHORT, |_, _| ());
        }
    });
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.end();
}
in_both_ways!(a_guest_whose_memory_is_aged_under_it_gets_on, aging);

/// The frames of a run follow each other only while the host has changed nothing.
fn runs<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    for _ in 0..2 {
        let reader = machine.vm.domain.reader().unwrap();
        machine.spawn(move |vm, host| {
            let section = reader.lock();
            let root = vm.stage2.root(Role::MAIN, &section).unwrap();
            let seen = vm.stage2.sample();
            let pfn = host.pfn(0);
            if (0..PAGES).all(|page| host.pfn(page) == pfn + page) {
                let level = [Level::PAGE, Level::MIB2][thread_rng().gen_range(0..2)];
                root.map_any_run(gfns(0, PAGES), level, &writable(pfn), seen, &section).unwrap();
            }
        });
    }
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.end();
}
in_both_ways!(runs_of_pages_among_faults_and_invalidations_leave_nothing_stale, runs);

/// A page that guests use, some of them more than others.
fn some_page() -> u64 {
    [4, 5, 6, 0][thread_rng().gen_range(0..4)]
}

fn merges<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(3);
    machine.spawn(|vm, host| (0..3).for_each(|_| merge(vm, host, some_page())));
    machine.end();
}
in_both_ways!(no_guest_writes_what_is_merged_or_reads_what_was_before_it_was_broken, merges);

fn merges_and_zaps<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    machine.spawn(|vm, host| (0..2).for_each(|_| merge(vm, host, some_page())));
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.spawn(|vm, host| replace_slot(vm, host, thread_rng().gen_bool(0.5)));
    machine.end();
}
in_both_ways!(pages_are_merged_broken_and_zapped_side_by_side, merges_and_zaps);

/// The last that has a frame writes to it, while CPUs may have the one of before.
fn owed<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(3);
    machine.spawn(|vm, host| {
        let mut open = Vec::new();
        for page in [5, some_page(), 6, 5] {
            open.extend(merge_owing(vm, host, page));
            thread::yield_now();
            own(vm, host, page);
            if thread_rng().gen_bool(0.3) {
                open.drain(..).for_each(|old| pay(old, host));
            }
        }
        open.drain(..).rev().for_each(|old| pay(old, host));
    });
    machine.end();
}
in_both_ways!(no_guest_misses_a_write_by_a_frame_that_it_is_owed_to_forget, owed);

fn owed_and_zapped<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    machine.spawn(|vm, host| {
        for page in [5, 6, 5] {
            let open = merge_owing(vm, host, page);
            if thread_rng().gen_bool(0.5) {
                own(vm, host, page);
            }
            thread::yield_now();
            open.into_iter().for_each(|old| pay(old, host));
        }
    });
    machine.spawn(|vm, host| (0..2).for_each(|_| unshare(vm, host, 5)));
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.spawn(|vm, host| replace_slot(vm, host, thread_rng().gen_bool(0.5)));
    machine.end();
}
in_both_ways!(what_is_owed_is_paid_whoever_takes_the_page_away, owed_and_zapped);

/// All guests write to the same page, which is shared.
fn breaks<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(1);
    machine.spawn(|vm, host| (0..2).for_each(|_| merge(vm, host, 5)));
    for _ in 0..2 {
        machine.spawn(|vm, host| (0..2).for_each(|_| unshare(vm, host, 5)));
    }
    machine.end();
}
in_both_ways!(two_that_break_one_page_leave_it_with_one_frame, breaks);

/// The host write-protects pages for good while they are broken.
fn protects<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    machine.spawn(|vm, host| (0..2).for_each(|_| merge(vm, host, 5)));
    machine.spawn(|vm, _| {
        let pages = 4..8;
        let _invalidation = vm.stage2.begin_invalidation(&frames(&pages));
        vm.stage2.write_protect(frames(&pages), SHORT, |_, _| ());
        // Until the end nothing of it becomes writable, whoever breaks what.
        let section = vm.domain.read_lock();
        let Ok(root) = vm.stage2.root(Role::MAIN, &section) else { return };
        for page in pages {
            thread::yield_now();
            let found = root.translate(gfn(page), &section);
            let readable = |(_, leaf): (_, Leaf)| leaf.permissions == readable(0).permissions;
            assert!(found.is_none_or(readable), "it was made writable meanwhile");
        }
    });
    machine.end();
}
in_both_ways!(no_break_makes_writable_what_is_just_protected, protects);

fn destruction<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::with_guests(2);
    machine.spawn(|vm, host| invalidate(vm, host));
    machine.spawn(|vm, _| {
        vm.stage2.write_protect(gfns(0, PAGES), SHORT, |_, _| ());
        vm.stage2.age(gfns(0, PAGES), SHORT, |_, _| ());
    });
    machine.spawn(|vm, _| {
        if let Ok(retiring) = vm.stage2.replace_roots() {
            vm.world.tlb.kick_all();
            retiring.finish();
        }
    });
    machine.spawn(|vm, _| {
        vm.stage2.retire();
        vm.stage2.wait_reclaimed();
        vm.config.reclaimer.stop();
    });
    machine.spawn(|vm, _| vm.config.reclaimer.serve(SHORT));
    machine.end();
}
in_both_ways!(a_vm_destroyed_while_it_runs_gives_everything_back, destruction);
