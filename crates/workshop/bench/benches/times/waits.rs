//! Grace periods.

use std::io;
use std::sync::Arc;

use mayfly_bench::companion::{Companion, Doing};
use mayfly_bench::guest::Guest;
use mayfly_bench::processors::Processors;
use mayfly_bench::race::{Contender, Times, race, race_in};
use mayfly_bench::sleeper::{Inside, Sleeper};
use mayfly_bench::table::{Table, Target};
use mayfly_bench::{interrupts, sections};

use crate::here::Here;

pub(crate) fn waiting_for_readers(here: &Here, companion: &Companion, table: &mut Table) {
    let synchronize = |reading_mayfly, reading_liburcu| {
        race([
            Contender::new("synchronize", |n| (0..n).for_each(|_| here.domain.synchronize()))
                .after(|| companion.set(reading_mayfly)),
            Contender::new("synchronize_expedited", |n| {
                (0..n).for_each(|_| here.domain.synchronize_expedited());
            })
            .after(|| companion.set(reading_mayfly)),
            Contender::new("liburcu memb", |n| (0..n).for_each(|_| here.liburcu.synchronize()))
                .after(|| companion.set(reading_liburcu)),
        ])
    };
    let mut rows = |which: &str, [lazy, expedited, liburcu]: [Times; 3], target| {
        table.row(&format!("synchronize, {which}"), &lazy, Some(&liburcu), target);
        table.row(&format!("synchronize_expedited, {which}"), &expedited, Some(&liburcu), target);
    };
    let asleep = synchronize(Doing::Sleeping, Doing::Sleeping);
    rows("nobody inside", asleep, Target::Nanos(1000.0));
    let running = synchronize(Doing::Running, Doing::Running);
    rows("nobody, thread runs", running, Target::Shown);
    let busy = synchronize(Doing::ReadingMayfly, Doing::ReadingLiburcu);
    rows("a busy reader", busy, Target::NoSlower);
    companion.set(Doing::Sleeping);
}

/// Turns of contenders that sleep.
const SLEEPY_TURNS: usize = 100;

/// Grace periods while another thread sleeps in its section, for a millisecond at a time.
pub(crate) fn waiting_beside_a_sleeper(here: &Here, processors: Processors, table: &mut Table) {
    let another = sections::domain(Arc::clone(&here.host));
    let readers = [sections::reader(&here.domain), sections::reader(&another)];
    let sleeper = Sleeper::new(processors, readers);
    let [other, own, qsbr, memb] = race_in(
        SLEEPY_TURNS,
        [
            Contender::new("synchronize", |n| (0..n).for_each(|_| here.domain.synchronize()))
                .after(|| sleeper.set(Inside::Second)),
            Contender::new("synchronize", |n| (0..n).for_each(|_| here.domain.synchronize()))
                .after(|| sleeper.set(Inside::First)),
            Contender::new("liburcu QSBR", |n| (0..n).for_each(|_| here.qsbr.synchronize()))
                .after(|| sleeper.set(Inside::Qsbr)),
            Contender::new("liburcu memb", |n| (0..n).for_each(|_| here.liburcu.synchronize()))
                .after(|| sleeper.set(Inside::Memb)),
        ],
    );
    for (which, ours) in [("of another domain", &other), ("of the domain", &own)] {
        let what = format!("synchronize, a sleeper inside {which}");
        let target = if which.contains("another") { Target::NoSlower } else { Target::Shown };
        table.row(&what, ours, Some(&qsbr), target);
        table.row(&what, ours, Some(&memb), Target::Shown);
    }
}

/// Of which interrupts are counted at a time: short, so that the vCPU has its processor all the while.
const PERIODS: u32 = 16;

/// As long without a grace period, roughly.
const SECTIONS: u32 = 1 << 18;

pub(crate) fn interrupting_a_guest(here: &Here, processors: Processors, table: &mut Table) {
    let what = "synchronize, a vCPU in its guest";
    let Some(there) = processors.there() else {
        return table.note(format!("{what}: not measured, there is one processor"));
    };
    let guest = match Guest::start(processors, sections::reader(&here.domain)) {
        Ok(guest) => guest,
        Err(error) => return table.note(format!("{what}: not measured, {error}")),
    };
    let ours = |n| (0..n).for_each(|_| here.domain.synchronize());
    let liburcus = |n| (0..n).for_each(|_| here.liburcu.synchronize());
    let [mayfly, liburcu] = race([
        Contender::new("synchronize", ours).after(|| guest.see_it_run()),
        Contender::new("liburcu memb", liburcus).after(|| guest.see_it_run()),
    ]);
    let taken_by = |act: &dyn Fn(u32), count| interrupts::taken_by(&guest, there, act, count);
    let counted = (|| {
        let mayfly = taken_by(&ours, PERIODS)?;
        let liburcu = taken_by(&liburcus, PERIODS)?;
        let sections = taken_by(&|n| sections::registered(&here.reader, n), SECTIONS)?;
        io::Result::Ok([mayfly, liburcu, sections])
    })();
    if let Err(error) = guest.end() {
        return table.note(format!("{what}: not measured, {error}"));
    }
    table.row(what, &mayfly, Some(&liburcu), Target::Shown);
    table.note(match counted {
        Ok([mayfly, liburcu, sections]) => format!(
            "interrupts that the vCPU's processor takes: {mayfly} in {PERIODS} times synchronize, {liburcu} in as many \
             of liburcu's, {sections} in {SECTIONS} sections"
        ),
        Err(error) => format!("interrupts that the vCPU's processor takes: not counted, {error}"),
    });
}
