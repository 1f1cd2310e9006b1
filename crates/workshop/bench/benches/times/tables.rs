//! Page tables, and the faults that fill them.

use mayfly_bench::partner::{Job, Partner};
use mayfly_bench::processors::Processors;
use mayfly_bench::race::{Contender, race, race_in};
use mayfly_bench::table::{Table, Target};
use mayfly_bench::{faults, tables};
use mayfly_stage2::{Arm, Ept};

use crate::here::Here;

pub(crate) fn mapping(here: &Here, table: &mut Table) {
    type Ours = tables::mayfly::Tables<Arm<48>>;
    type Theirs = tables::aarch64::Tables;

    let hardware = tables::hardware();
    let ours = |act: fn(&mut Ours)| {
        let empty = Ours::new(&hardware, &here.domain);
        Contender::whole("Root", tables::PAGES, empty, Ours::renew, act)
    };
    let theirs = |act: fn(&mut Theirs)| {
        let empty = Theirs::new(&hardware);
        Contender::whole("aarch64-paging map_range", tables::PAGES, empty, Theirs::renew, act)
    };
    let [run, pages, their_run, their_pages] = race_in(
        100,
        [
            ours(|tables| tables.map_run()),
            ours(|tables| tables.map_pages()),
            theirs(Theirs::map_run),
            theirs(Theirs::map_pages),
        ],
    );
    table.row("map_run of 1 GiB: a page", &run, Some(&their_run), Target::NoSlower);
    table.row("  page by page: lock, sample, map", &pages, Some(&their_pages), Target::Shown);
}

pub(crate) fn translating(here: &Here, table: &mut Table) {
    let hardware = tables::hardware();
    let arm = tables::mayfly::Tables::<Arm<48>>::mapped(&hardware, &here.domain);
    let ept = tables::mayfly::Tables::<Ept>::mapped(&hardware, &here.domain);
    let aarch64 = tables::aarch64::Tables::mapped(&hardware);
    let x86 = tables::x86::Tables::mapped(&hardware);
    let multiarch = tables::multiarch::Tables::mapped(&hardware);
    let pages = tables::uniform();
    let [arm, arm_inside, aarch64, ept, ept_inside, x86, multiarch] = race([
        Contender::new("Arm", |n| arm.translate(&pages, n)),
        Contender::new("Arm, in one section", |n| arm.translate_in_one_section(&pages, n)),
        Contender::new("aarch64-paging walk_range", |n| aarch64.translate(&pages, n)),
        Contender::new("EPT", |n| ept.translate(&pages, n)),
        Contender::new("EPT, in one section", |n| ept.translate_in_one_section(&pages, n)),
        Contender::new("x86_64 OffsetPageTable", |n| x86.translate(&pages, n)),
        Contender::new("page_table_multiarch query", |n| multiarch.translate(&pages, n)),
    ]);
    let (each, inside) = ("lock + translate a page of 1 GiB", "  in one section: translate");
    table.row(&format!("{each}, Arm"), &arm, Some(&aarch64), Target::NoSlower);
    table.row(&format!("{inside}, Arm"), &arm_inside, Some(&aarch64), Target::Shown);
    for peer in [&x86, &multiarch] {
        table.row(&format!("{each}, EPT"), &ept, Some(peer), Target::NoSlower);
    }
    table.row(&format!("{inside}, EPT"), &ept_inside, Some(&x86), Target::Shown);
}

/// Faults of each vCPU in a batch. Not left to calibration, which would make batches of a few where the other thread
/// keeps losing its processor, and what is timed then is how the two come together.
const FAULTS: u32 = 4096;

pub(crate) fn faulting(processors: Processors, table: &mut Table) {
    let host = faults::Host::new();
    let [one, shared, separate] = [1, 1, 2].map(|count| faults::Vms::new(&host, count));
    let also_together = shared.vcpu(0, 1);
    let also_apart = separate.vcpu(1, 1);
    let jobs =
        [also_together, also_apart].map(|mut vcpu| -> Job { Box::new(move |n| vcpu.run(n)) });
    let partner = Partner::new(processors, jobs.into());
    let [alone, together, apart] = race([
        Contender::whole(
            "one vCPU",
            FAULTS,
            one.vcpu(0, 0),
            |_| {
                one.make_room(FAULTS);
                partner.sleep();
            },
            |vcpu| vcpu.run(FAULTS),
        ),
        Contender::whole(
            "one VM",
            FAULTS,
            shared.vcpu(0, 0),
            |_| {
                shared.make_room(FAULTS);
                partner.wake();
            },
            |vcpu| partner.both(0, FAULTS, || vcpu.run(FAULTS)),
        ),
        Contender::whole(
            "two VMs",
            FAULTS,
            separate.vcpu(0, 0),
            |_| {
                separate.make_room(FAULTS);
                partner.wake();
            },
            |vcpu| partner.both(1, FAULTS, || vcpu.run(FAULTS)),
        ),
    ]);
    table.row("fault: one vCPU", &alone, None, Target::Shown);
    table.row("fault: two vCPUs of one VM, a GiB each", &together, Some(&apart), Target::Shown);
    table.speed_up("  speed-up of the two vCPUs over one", [&alone, &together, &apart], 0.85);
}
