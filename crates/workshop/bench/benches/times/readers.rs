//! Sections, and reads inside them.

use std::sync::Arc;

use mayfly_bench::race::{Contender, race};
use mayfly_bench::table::{Table, Target};
use mayfly_bench::{pointers, sections};
use mayfly_platform::Host;

use crate::here::{Here, counted};

pub(crate) fn entering_and_leaving(here: &Here, table: &mut Table) {
    let fenced = sections::domain(Arc::new(Host::fenced()));
    let fenced = sections::reader(&fenced);
    let handle = crossbeam_epoch::default_collector().register();

    let [ours, fenced, anonymous, pin, handle, inlined, exported] = race([
        Contender::new("registered", |n| sections::registered(&here.reader, n)),
        Contender::new("fenced", |n| sections::registered(&fenced, n)),
        Contender::new("anonymous", |n| sections::anonymous(&here.domain, n)),
        Contender::new("crossbeam_epoch::pin", sections::crossbeam_pin),
        Contender::new("crossbeam LocalHandle::pin", |n| sections::crossbeam_handle(&handle, n)),
        Contender::new("liburcu memb, inlined", |n| here.liburcu.inlined_sections(n)),
        Contender::new("liburcu memb, exported", |n| here.liburcu.exported_sections(n)),
    ]);

    let what = "reader: lock + unlock";
    table.row(what, &ours, Some(&pin), Target::TimesPeer(0.5));
    table.row(what, &ours, Some(&handle), Target::Shown);
    let (faster, slower) = if inlined.median() <= exported.median() {
        (&inlined, &exported)
    } else {
        (&exported, &inlined)
    };
    table.row(what, &ours, Some(faster), Target::NoSlower);
    table.row(what, &ours, Some(slower), Target::Shown);
    table.row("fenced reader: lock + unlock", &fenced, Some(&pin), Target::NoSlower);
    table.row("anonymous: read_lock + unlock", &anonymous, Some(&pin), Target::TimesPeer(2.0));
}

/// Reads inside a section that is open, or of pointers that need none.
pub(crate) fn reading(here: &Here, table: &mut Table) {
    let ours = pointers::Mayfly::new(&here.domain);
    let (plain, crossbeam) = (pointers::Plain::new(), pointers::Crossbeam::new());
    let (mut cached, hazardous) = (pointers::Cached::new(), pointers::Hazardous::new());
    let mut hazard = haphazard::HazardPointer::new();
    let (collector, pinned) = (seize::Collector::new(), crossbeam_epoch::pin());
    let guard = collector.enter();
    for (which, is_dependent) in [("", false), ("dependent ", true)] {
        let [ours, owned, plain, crossbeam, cached, seize, hazard] = race([
            Contender::new("Rcu::load", |n| ours.reads(&here.reader, is_dependent, n)),
            Contender::new("the same checks, by hand", |n| plain.owned_reads(1, is_dependent, n)),
            Contender::new("AtomicPtr::load(Acquire)", |n| plain.reads(is_dependent, n)),
            Contender::new("crossbeam Atomic::load", |n| crossbeam.reads(&pinned, is_dependent, n)),
            Contender::new("arc-swap Cache::load", |n| cached.reads(is_dependent, n)),
            Contender::new("seize protect", |n| plain.seize_reads(&guard, is_dependent, n)),
            Contender::new("haphazard load", |n| hazardous.reads(&mut hazard, is_dependent, n)),
        ]);
        let what = format!("inside: {which}read of a pointer");
        table.row(&what, &ours, Some(&plain), Target::TimesPeer(1.05));
        table.row(&what, &ours, Some(&owned), Target::TimesPeer(1.1));
        for peer in [&crossbeam, &cached, &seize, &hazard] {
            table.row(&what, &ours, Some(peer), Target::Shown);
        }
    }
}

/// What an exit does: a section is entered, `EACH` pointers are read, and the section is left.
pub(crate) fn exiting<const EACH: usize>(here: &Here, table: &mut Table) {
    let (ours, plain) = (pointers::Mayfly::new(&here.domain), pointers::Plain::new());
    let (copies, collector) = (pointers::Copies::new(), seize::Collector::new());
    let [ours, quiescent, online, copies, seize] = race([
        Contender::new("an exit", |n| ours.exits::<EACH>(&here.reader, n)),
        Contender::new("liburcu QSBR, quiescent", |n| here.qsbr.exits::<EACH>(n)),
        Contender::new("liburcu QSBR, on and offline", |n| here.qsbr.online_exits::<EACH>(n)),
        Contender::new("left-right enter", |n| copies.exits::<EACH>(n)),
        Contender::new("seize enter", |n| plain.seize_exits::<EACH>(&collector, n)),
    ]);
    let what = format!("an exit with {}", counted(EACH, "read"));
    table.row(&what, &ours, Some(&online), Target::NoSlower);
    for peer in [&quiescent, &copies, &seize] {
        table.row(&what, &ours, Some(peer), Target::Shown);
    }
}
