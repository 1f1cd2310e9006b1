//! Which of the core's safe functions the random programs call: all, but for those that are excused here.

use std::fs::read_to_string;

/// Crates whose functions are called.
const CRATES: [&str; 8] =
    ["platform", "srcu", "iobus", "memslot", "stage2", "vm", "vgic", "devices"];

const SOURCES: [&str; 12] = [
    include_str!("bus.rs"),
    include_str!("deferral.rs"),
    include_str!("devices/card.rs"),
    include_str!("devices/driver.rs"),
    include_str!("devices/mod.rs"),
    include_str!("formats.rs"),
    include_str!("guests.rs"),
    include_str!("host.rs"),
    include_str!("interrupts.rs"),
    include_str!("memory.rs"),
    include_str!("step.rs"),
    include_str!("tables.rs"),
];

/// Methods of the language's traits.
const LANGUAGE: &str = "add bitand bitor clone cmp default deref deref_mut drop eq fmt from hash next partial_cmp \
                        size_hint sub";

/// What is not called, by the ends of paths, and why not: a whole type or trait where it ends in `::`.
const EXCUSED: [(&str, &str); 12] = [
    (
        "a number, a set of bits, or a value to be looked at: it leads to nothing",
        "Gfn:: Gpa:: Hpa:: Hva:: Pfn:: Instant:: Span:: Context:: Identity:: Flags:: Permissions:: FrameRange:: \
         Level:: Leaf:: Entry:: Error:: NotCopied:: SlotId:: ArmIpa:: ArmFeatures:: ArmChoice:: WithArm:: CacheTraps:: Access:: \
         Resolved:: Hold:: memslot::Edit:: Callback::bytes Polled::cookie RcuBox::as_ptr Slot::backed_by Slot::gfns \
         Snapshot:: DirtyBitmap::words ::any_marked",
    ),
    (
        "a trait's, whose implementations the core calls",
        "Cache:: Frames:: Observer:: Tlb:: Layer:: Platform:: Host:: L::charge L::context L::cpus L::heavy_barrier \
         L::identity L::interrupt L::now L::observer L::preemption_point L::reader_barrier L::relax L::spin \
         L::wait L::wait_until L::wake Section:: Backing:: Format:: Arm:: Ept:: Npt:: SvX4:: Resident:: Handle::hold \
         Handle::tell_when_out Guest::cpu Device:: Box:: Arc:: HostMemory:: \
         Kick:: F::kick GuestMemory:: GuestTables:: Disk:: Source::",
    ),
    (
        "a part that the crates above are made of, which has no table and no frame",
        "Lock:: Attic:: Shared:: memory::try_box observe::tell no_unwind Bell:: Rcu:: RcuBox::try_new_holding \
         RcuOption::compare_exchange Asked:: vacate::ask_all",
    ),
    (
        "waits for another thread, which these programs do not have",
        "Worker:: WorkerThread:: Srcu::poll_or_ring Retired::synchronize_expedited Replaced::synchronize \
         Replaced::synchronize_expedited \
         Requests::wait Stage2::wait_invalidation Stage2::wait_invalidation_unless ::wait_reclaimed \
         Reclaimer::serve Reclaimer::stop InvalidationWaiters::look_again",
    ),
    (
        "saved, loaded from bytes at random, and copied, by the tests of its own crate (`saved.rs`)",
        "Vgic::load_distributor Vgic::load_its Vgic::load_vcpu Vgic::save_distributor Vgic::save_its \
         Vgic::save_vcpu Vgic::try_copy Pl011::save Psci::save Psci::cores \
         Pl031::save Mmio::save Mmio::go_on_as Pl011::load Psci::load Pl031::load Mmio::load",
    ),
    (
        "of a disk whose requests are answered later, a console or a balloon, which the tests of their own crate drive with \
         rings at random (`virtio/remote.rs`, `virtio/console.rs`, `virtio/balloon.rs`)",
        "Remote:: Request:: Mmio::answer Mmio::is_wanted Mmio::take_request \
         Console:: Mmio::deliver Mmio::next_output Mmio::receives Balloon:: Mmio::ask_for Mmio::take_pages",
    ),
    (
        "a copy of registers in memory, which the tests of its own crate compare after each step (`common/shown.rs`)",
        "Shown::",
    ),
    (
        "a count",
        "Reclaimer::frames Reclaimer::peak_frames Reclaimer::rung Reclaimer::turns Vmids::rollovers Vgic::heap_bytes \
         Vm::vcpu_count",
    ),
    (
        "of what a VM is made of, before it is",
        "Reclaimer::freeing_at_once Reclaimer::with_slice DirtyBitmap::try_new MemSlots:: Prepared:: \
         memslot::Change:: \
         Stage2::try_new IoBus::try_new",
    ),
    (
        "does what a method of `Vm` does that is called",
        "IoBus::register IoBus::unregister IoBus::register_eventfd IoBus::unregister_eventfd IoBus::insert \
         IoBus::remove IoBus::insert_eventfd IoBus::remove_eventfd IoBus::find_write IoBus::try_relocate",
    ),
    (
        "takes what only unsafe code makes: a grant, or a `Resident`",
        "Grant:: Stage2::register_holder Holder::enter",
    ),
    (
        "says which domain, root or CPU something is of",
        "::domain Root::top RootRef::is VmidTag::tlbs Translation::cpu Translation::tlbs",
    ),
];

/// Methods whose names several types have, by the ends of their paths, and how the programs call them. A function whose type
/// is named where it is called (`Type::name`) is not here.
const SHARED: [(&str, &str); 93] = [
    ("Stage2::age", "self.stage2(vm).age("),
    ("Vm::age", "vm_of.age("),
    ("Psci::call", "board.psci.call("),
    ("Srcu::call", "self.domain.call("),
    ("Slot::contains", "slot.contains("),
    ("Srcu::cookie", "self.domain.cookie()"),
    ("Guest::data", "self.inner.data()"),
    ("Replaced::defer", "replaced.defer()"),
    ("Retired::defer", "old.defer()"),
    ("Replaced::defer_expedited", "replaced.defer_expedited()"),
    ("Retired::defer_expedited", "old.defer_expedited()"),
    ("Mmio::device", "self.net.device()"),
    ("IoBus::edit", "bus.edit("),
    ("Vgic::enter", "gic.enter("),
    ("Guest::enter", "self.inner.enter("),
    ("IoBus::find", "bus.find("),
    ("Retiring::finish", "retiring.finish()"),
    ("Root::frames", "root.frames()"),
    ("Stage2::frames", "stage2.frames()"),
    ("Role::get", "root.role().get()"),
    ("DirtyBitmap::harvest_marked", "log.harvest_marked("),
    ("Vm::harvest_marked", "vm_of.harvest_marked("),
    ("Retired::hold", "old.hold("),
    ("Slot::id", "slot.id()"),
    ("Vcpu::id", "vcpu.id()"),
    ("Edit::insert", "edit.insert("),
    ("Edit::insert_eventfd", "edit.insert_eventfd("),
    ("Pl011::interrupt", "board.uart.interrupt()"),
    ("Pl031::interrupt", "board.clock.interrupt()"),
    ("Uart16550::interrupt", "board.ports.interrupt()"),
    ("Mmio::interrupt", "self.entropy.interrupt()"),
    ("Retired::into_callback", "old.into_callback()"),
    ("RcuOption::into_inner", "value.into_inner()"),
    ("Srcu::is", "self.domain.is("),
    ("Psci::is_pending", "board.psci.is_pending("),
    ("Vgic::is_pending", "gic.is_pending("),
    ("Kicker::kick", "vcpu.kicker().kick()"),
    ("Vm::kick", "self.vm.kick("),
    ("Invalidation::leave", "invalidation.leave()"),
    ("Stage2::leave", "stage2.leave("),
    ("Vgic::leave", "gic.leave("),
    ("Frame::len", "frame.len()"),
    ("Packet::len", "packet.len()"),
    ("RcuOption::load", "self.value.load("),
    ("Slots::load", ".slots().load("),
    ("Reader::lock", "reader.lock()"),
    ("DirtyBitmap::pages", "log.pages()"),
    ("Slot::pages", "slot.pages()"),
    ("Cmos::read", "board.cmos.read("),
    ("Pl011::read", "board.uart.read("),
    ("Pl031::read", "board.clock.read("),
    ("Uart16550::read", "board.ports.read("),
    ("Mmio::read", "of.read("),
    ("DirtyBitmap::read", "log.read("),
    ("Vgic::read", "gic.read("),
    ("Pl011::receive", "board.uart.receive("),
    ("Uart16550::receive", "board.ports.receive("),
    ("Mmio::receive", "self.net.receive("),
    ("Vm::register_eventfd", "vm.register_eventfd("),
    ("Edit::relocate", "edit.relocate("),
    ("IoBus::relocate", "bus.relocate("),
    ("Vm::relocate", "vm.relocate("),
    ("Edit::remove", "edit.remove("),
    ("Edit::remove_eventfd", "edit.remove_eventfd("),
    ("RcuOption::replace", "self.value.replace("),
    ("Mmio::reset", "self.entropy.reset()"),
    ("Vgic::reset", "gic.reset()"),
    ("Stage2::root", "self.stage2(vm).root("),
    ("Vcpu::run", "vcpu.run("),
    ("Mmio::serve", "of.serve(memory)"),
    ("IoBus::settle", "bus.settle()"),
    ("Stage2::split_blocks", "self.stage2(vm).split_blocks("),
    ("Vm::split_blocks", "vm_of.split_blocks("),
    ("Retired::synchronize", "old.synchronize()"),
    ("Srcu::synchronize", "self.domain.synchronize()"),
    ("Srcu::synchronize_expedited", "self.domain.synchronize_expedited()"),
    ("Root::tag", "root.tag()"),
    ("Vmids::tag", "self.vmids.tag()"),
    ("Mmio::take", "self.net.take("),
    ("RcuOption::take", "self.value.take()"),
    ("Replaced::try_defer", "replaced.try_defer()"),
    ("Retired::try_defer", "old.try_defer()"),
    ("Vm::unregister_eventfd", "vm.unregister_eventfd("),
    ("Stage2::vcpu", "stage2.vcpu()"),
    ("Vmids::vcpu", "self.vmids.vcpu()"),
    ("CpuInterface::vcpu", "cpu.vcpu()"),
    ("Translation::vcpu", "translation.vcpu()"),
    ("Cmos::write", "board.cmos.write("),
    ("Pl011::write", "board.uart.write("),
    ("Pl031::write", "board.clock.write("),
    ("Uart16550::write", "board.ports.write("),
    ("Mmio::write", "of.write("),
    ("Vgic::write", "gic.write("),
];

fn excuses() -> impl Iterator<Item = &'static str> {
    EXCUSED.iter().flat_map(|(_, excused)| excused.split_whitespace())
}

/// The path of a function without what is generic in it.
fn path(line: &str) -> Option<String> {
    let line = line.strip_prefix("pub ")?;
    let line = line.strip_prefix("const ").unwrap_or(line).strip_prefix("fn ")?;
    let (mut path, mut depth, mut before) = (String::from("::"), 0, ' ');
    for letter in line.chars() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            '(' if depth == 0 => break,
            _ if depth == 0 => path.push(letter),
            _ => {}
        }
        before = letter;
    }
    Some(path)
}

/// Whether a path is the one that is excused, or of the type that is.
fn is(path: &str, excused: &str) -> bool {
    match excused.strip_suffix("::") {
        Some(of) => path.rsplit_once("::").is_some_and(|(of_path, _)| of_path.ends_with(of)),
        None => path.ends_with(excused),
    }
}

/// The last part of a path, and the part before it: a type, or a module.
fn parts(path: &str) -> (&str, &str) {
    let (of, name) = path.rsplit_once("::").unwrap();
    (name, of.rsplit_once("::").map_or(of, |(_, of)| of))
}

/// Whether programs call what has that path, whose name other types `share` or not.
fn is_called(path: &str, is_shared: bool, shared: &[(&str, &str)], sources: &[&str]) -> bool {
    let (name, of) = parts(path);
    let is_there = |call: &str| sources.iter().any(|source| source.contains(call));
    let method = format!(".{name}(");
    let by_value = || {
        let calls =
            |(end, call): &(&str, &str)| is(path, end) && call.contains(&method) && is_there(call);
        if is_shared { shared.iter().any(calls) } else { is_there(&method) }
    };
    is_there(&format!("{of}::{name}")) || by_value()
}

/// The safe functions that are not the language's.
fn functions() -> Vec<String> {
    let listing = |name| format!("{}/../{name}/public-api.txt", env!("CARGO_MANIFEST_DIR"));
    let texts = CRATES.map(|name| read_to_string(listing(name)).unwrap());
    let mut all: Vec<_> = texts.iter().flat_map(|text| text.lines().filter_map(path)).collect();
    all.retain(|path| !LANGUAGE.split_whitespace().any(|method| method == parts(path).0));
    all.sort();
    all.dedup();
    all
}

#[test]
#[cfg_attr(miri, ignore = "reads files, and calls nothing")]
fn each_safe_function_of_the_core_is_called_by_random_programs_or_excused() {
    let mut idle: Vec<_> = excuses().collect();
    let mut functions = functions();
    // Those of the excused, too: a call of one of them has the same text.
    let names: Vec<_> = functions.iter().map(|path| parts(path).0.to_string()).collect();
    let is_shared = |path: &str| names.iter().filter(|name| *name == parts(path).0).count() > 1;
    functions.retain(|path| {
        let excused: Vec<_> = excuses().filter(|excused| is(path, excused)).collect();
        idle.retain(|idle| !excused.contains(idle));
        excused.is_empty()
    });
    assert!(idle.is_empty(), "excuses for nothing: {idle:?}");
    let left = functions.iter().filter(|path| !is_called(path, is_shared(path), &SHARED, &SOURCES));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0], "neither called nor excused");
    for (end, call) in SHARED {
        let of: Vec<_> = functions.iter().filter(|path| is(path, end)).collect();
        assert!(of.len() == 1 && is_shared(of[0]), "{end} is shared with none, or several: {of:?}");
        let others = SHARED.iter().filter(|(_, other)| call == *other);
        assert_eq!(others.count(), 1, "{call} stands for several");
    }
}

#[test]
fn a_call_of_one_type_does_not_stand_for_that_of_another() {
    const SHARED: [(&str, &str); 2] = [("One::run", "one.run("), ("Two::run", "two.run(")];
    let is_called = |path: &str, is_shared, source: &str| {
        is_called(&format!("::a::{path}"), is_shared, &SHARED, &[source])
    };
    assert!(is_called("One::run", false, "any.run()"));
    assert!(is_called("One::run", true, "one.run()"));
    for source in ["two.run()", "any.run()", "Two::run()"] {
        assert!(!is_called("One::run", true, source), "{source}");
    }
    assert!(is_called("One::run", true, "One::run(&one)"));
    assert!(!is_called("Three::run", true, "one.run(); two.run()"), "it is not in the list");
}
