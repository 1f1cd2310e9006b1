//! Deferring, and many writers at once.

use std::sync::Arc;

use mayfly_bench::crowd::{self, Crowd};
use mayfly_bench::deferred;
use mayfly_bench::processors::Processors;
use mayfly_bench::race::{Contender, race, race_in};
use mayfly_bench::table::{Table, Target};
use mayfly_iobus::IoBus;
use mayfly_memslot::MemSlots;

use crate::here::Here;

pub(crate) fn deferring(here: &Here, processors: Processors, table: &mut Table) {
    here.liburcu.free_on(processors.there());
    let by_hand = deferred::ByHand::new(&here.domain);
    let [ours, by_hand, crossbeam, in_batches, liburcu] = race([
        Contender::new("call", |n| deferred::mayfly(&here.domain, n)),
        Contender::new("the same steps, by hand", |n| by_hand.calls(n)),
        Contender::new("crossbeam Guard::defer", deferred::crossbeam),
        Contender::new("crossbeam, 64 times a pin", deferred::crossbeam_in_batches),
        Contender::new("liburcu call_rcu", |n| here.liburcu.calls(n)),
    ]);
    let what = "call: allocate, defer, free";
    for peer in [&crossbeam, &in_batches, &liburcu] {
        table.row(what, &ours, Some(peer), Target::NoSlower);
    }
    table.row(what, &ours, Some(&by_hand), Target::TimesPeer(1.1));
    here.domain.barrier();
    here.liburcu.barrier();
}

/// Turns of the crowd, whose batches are long.
const CROWDED_TURNS: usize = 50;

pub(crate) fn writing_in_a_crowd(here: &Here, table: &mut Table) {
    let slots = MemSlots::try_new(Arc::clone(&here.host), &here.domain);
    let slots = Arc::new(slots.expect("no slots take little memory"));
    let bus = IoBus::try_new(&here.domain, Arc::clone(&here.host));
    let bus = Arc::new(bus.expect("a bus takes little memory"));
    let crowd = Crowd::new(&[
        crowd::slots(Arc::clone(&slots), false),
        crowd::slots(slots, true),
        crowd::devices(bus),
        crowd::regions(),
    ]);
    let all = ["slots", "slots, settled", "devices", "vm-memory insert, remove"];
    let mut which = 0..;
    let [deferred, settled, devices, regions] = race_in(
        CROWDED_TURNS,
        all.map(|name| {
            let which = which.next().expect("there is always one more");
            Contender::whole(name, crowd::CHANGES, &crowd, |_| (), move |crowd| crowd.write(which))
        }),
    );
    let writers = crowd::WRITERS;
    for (what, ours, target) in [
        ("a slot", &deferred, Target::NoSlower),
        ("a slot, and no reader of it left", &settled, Target::Shown),
        ("a device", &devices, Target::Shown),
    ] {
        table.row(&format!("{writers} writers: {what}"), ours, Some(&regions), target);
    }
    here.domain.barrier();
}
