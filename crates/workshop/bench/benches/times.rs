//! Mayfly's times beside its peers', in one table. `docs/bench.md` explains the rows.

use std::io;
use std::sync::Arc;

use mayfly_bench::companion::{Companion, Doing};
use mayfly_bench::crowd::{self, Crowd};
use mayfly_bench::guest::Guest;
use mayfly_bench::liburcu::Registered;
use mayfly_bench::partner::{Job, Partner};
use mayfly_bench::processors::Processors;
use mayfly_bench::race::{Contender, Times, race, race_in};
use mayfly_bench::sleeper::{Inside, Sleeper};
use mayfly_bench::table::{Table, Target};
use mayfly_bench::{bus, deferred, faults, interrupts, memory, pointers, qsbr, sections, tables};
use mayfly_iobus::IoBus;
use mayfly_memslot::{MemSlots, USER_SLOTS};
use mayfly_platform::{Host, Platform};
use mayfly_srcu::{Reader, Srcu};
use mayfly_stage2::{Arm, Ept};

/// What this thread reads and waits with: a reader of Mayfly's, and registrations with liburcu.
struct Here {
    host: Arc<dyn Platform>,
    domain: Srcu,
    reader: Reader,
    liburcu: Registered,
    qsbr: qsbr::Registered,
}

fn main() {
    let host: Arc<dyn Platform> = Arc::new(Host::new());
    let domain = sections::domain(Arc::clone(&host));
    let reader = sections::reader(&domain);
    let here =
        Here { host, domain, reader, liburcu: Registered::new(), qsbr: qsbr::Registered::new() };
    // From here on this process has two threads, as every VM has several: with one, `membarrier` would cost nothing.
    let processors = Processors::two();
    let companion = Companion::new(processors, sections::reader(&here.domain));

    let barrier = |has_it| if has_it { "membarrier" } else { "fences" };
    println!(
        "\nreaders are ordered by {} (mayfly), {} (liburcu)\n",
        barrier(!here.domain.is_fenced()),
        barrier(here.liburcu.uses_membarrier()),
    );
    let mut table = Table::new();
    entering_and_leaving(&here, &mut table);
    reading(&here, &mut table);
    exiting::<1>(&here, &mut table);
    exiting::<8>(&here, &mut table);
    waiting_for_readers(&here, &companion, &mut table);
    waiting_beside_a_sleeper(&here, processors, &mut table);
    interrupting_a_guest(&here, processors, &mut table);
    deferring(&here, processors, &mut table);
    for devices in [bus::FEW, bus::MANY] {
        finding_devices(&here, devices, &mut table);
    }
    for slots in [1, 8, 64, 512, USER_SLOTS] {
        finding_slots(&here, slots, &mut table);
    }
    writing_in_a_crowd(&here, &mut table);
    mapping(&here, &mut table);
    translating(&here, &mut table);
    faulting(processors, &mut table);
    table.finish();
}

fn entering_and_leaving(here: &Here, table: &mut Table) {
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
    table.row(what, &ours, Some(faster), Target::TimesPeer(1.0));
    table.row(what, &ours, Some(slower), Target::Shown);
    table.row("fenced reader: lock + unlock", &fenced, Some(&pin), Target::TimesPeer(1.0));
    table.row("anonymous: read_lock + unlock", &anonymous, Some(&pin), Target::TimesPeer(2.0));
}

/// `1 slot`, `8 slots`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Reads inside a section that is open, or of pointers that need none.
fn reading(here: &Here, table: &mut Table) {
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
fn exiting<const EACH: usize>(here: &Here, table: &mut Table) {
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
    table.row(&what, &ours, Some(&online), Target::TimesPeer(1.0));
    for peer in [&quiescent, &copies, &seize] {
        table.row(&what, &ours, Some(peer), Target::Shown);
    }
}

fn waiting_for_readers(here: &Here, companion: &Companion, table: &mut Table) {
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
    rows("a busy reader", busy, Target::TimesPeer(1.0));
    companion.set(Doing::Sleeping);
}

/// Turns of contenders that sleep.
const SLEEPY_TURNS: usize = 100;

/// Grace periods while another thread sleeps in its section, for a millisecond at a time.
fn waiting_beside_a_sleeper(here: &Here, processors: Processors, table: &mut Table) {
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
        let target = if which.contains("another") { Target::TimesPeer(1.0) } else { Target::Shown };
        table.row(&what, ours, Some(&qsbr), target);
        table.row(&what, ours, Some(&memb), Target::Shown);
    }
}

/// Of which interrupts are counted at a time: short, so that the vCPU has its processor all the while.
const PERIODS: u32 = 16;
/// As long without a grace period, roughly.
const SECTIONS: u32 = 1 << 18;

fn interrupting_a_guest(here: &Here, processors: Processors, table: &mut Table) {
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

fn deferring(here: &Here, processors: Processors, table: &mut Table) {
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
        table.row(what, &ours, Some(peer), Target::TimesPeer(1.0));
    }
    table.row(what, &ours, Some(&by_hand), Target::TimesPeer(1.1));
    here.domain.barrier();
    here.liburcu.barrier();
}

fn finding_devices(here: &Here, devices: u64, table: &mut Table) {
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
    row(&what, bus::uniform(devices), Target::TimesPeer(1.0));
    row("  the same device each time", bus::same(devices), Target::Shown);
}

fn finding_slots(here: &Here, slots: u16, table: &mut Table) {
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
    rows("", memory::uniform(slots), Target::TimesPeer(1.0));
    rows("  same slot: ", memory::same(slots), Target::Shown);
}

/// Turns of the crowd, whose batches are long.
const CROWDED_TURNS: usize = 50;

fn writing_in_a_crowd(here: &Here, table: &mut Table) {
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
        ("a slot", &deferred, Target::TimesPeer(1.0)),
        ("a slot, and no reader of it left", &settled, Target::Shown),
        ("a device", &devices, Target::Shown),
    ] {
        table.row(&format!("{writers} writers: {what}"), ours, Some(&regions), target);
    }
    here.domain.barrier();
}

fn mapping(here: &Here, table: &mut Table) {
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
    table.row("map_run of 1 GiB: a page", &run, Some(&their_run), Target::TimesPeer(1.0));
    table.row("  page by page: lock, sample, map", &pages, Some(&their_pages), Target::Shown);
}

fn translating(here: &Here, table: &mut Table) {
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
    table.row(&format!("{each}, Arm"), &arm, Some(&aarch64), Target::TimesPeer(1.0));
    table.row(&format!("{inside}, Arm"), &arm_inside, Some(&aarch64), Target::Shown);
    for peer in [&x86, &multiarch] {
        table.row(&format!("{each}, EPT"), &ept, Some(peer), Target::TimesPeer(1.0));
    }
    table.row(&format!("{inside}, EPT"), &ept_inside, Some(&x86), Target::Shown);
}

/// Faults of each vCPU in a batch. Not left to calibration, which would make batches of a few where the other thread
/// keeps losing its processor, and what is timed then is how the two come together.
const FAULTS: u32 = 4096;

fn faulting(processors: Processors, table: &mut Table) {
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
