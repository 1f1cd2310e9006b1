//! Devices and memslots, found by address.

use std::sync::Arc;

use mayfly_bench::race::{Contender, race};
use mayfly_bench::table::{Table, Target};
use mayfly_bench::{bus, memory};

use crate::here::{Here, counted};

pub(crate) fn finding_devices(here: &Here, devices: u64, table: &mut Table) {
    let ours = bus::mayfly(&here.domain, Arc::clone(&here.host), devices);
    let theirs = bus::vm_device(devices);
    let mut row = |what: &str, addresses, target| {
        let mut last = mayfly_iobus::LastHit::default();
        let [ours, theirs] = race([
            Contender::new("IoBus::find", |n| {
                bus::mayfly_reads(&ours, &here.reader, &mut last, &addresses, n);
            }),
            Contender::new("vm-device IoManager, no lock", |n| {
                bus::vm_device_reads(&theirs, &addresses, n);
            }),
        ]);
        table.row(what, &ours, Some(&theirs), target);
    };
    let what = format!("lock + find of {devices} devices + read");
    row(&what, bus::uniform(devices), Target::NoSlower);
    row("  the same device each time", bus::same(devices), Target::Shown);
}

pub(crate) fn finding_slots(here: &Here, slots: u16, table: &mut Table) {
    let ours = memory::mayfly(&here.domain, Arc::clone(&here.host), slots);
    let theirs = memory::vm_memory(slots);
    let mut rows = |which: &str, addresses, target| {
        let mut last = mayfly_memslot::LastHit::default();
        let [find, near, inside, theirs, their_inside] = race([
            Contender::new("find", |n| memory::mayfly_lookups(&ours, &here.reader, &addresses, n)),
            Contender::new("find_near", |n| {
                memory::mayfly_lookups_near(&ours, &here.reader, &mut last, &addresses, n);
            }),
            Contender::new("find, inside", |n| {
                memory::mayfly_lookups_inside(&ours, &here.reader, &addresses, n);
            }),
            Contender::new("vm-memory find_region", |n| {
                memory::vm_memory_lookups(&theirs, &addresses, n);
            }),
            Contender::new("vm-memory, guard kept", |n| {
                memory::vm_memory_lookups_inside(&theirs, &addresses, n);
            }),
        ]);
        let slots = counted(slots.into(), "slot");
        table.row(&format!("{which}find of {slots}"), &find, Some(&theirs), target);
        let what = format!("{which}inside: find of {slots}");
        table.row(&what, &inside, Some(&their_inside), target);
        let what = format!("{which}find_near of {slots}");
        table.row(&what, &near, Some(&theirs), Target::Shown);
    };
    rows("", memory::uniform(slots), Target::NoSlower);
    rows("  same slot: ", memory::same(slots), Target::Shown);
}
