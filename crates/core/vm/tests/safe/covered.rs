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
const EXCUSED: [(&str, &str); 11] = [
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
        "Worker:: WorkerThread:: Srcu::poll_or_ring Retired::synchronize_expedited Replaced::synchronize_expedited \
         Requests::wait Stage2::wait_invalidation Stage2::wait_invalidation_unless ::wait_reclaimed \
         Reclaimer::serve Reclaimer::stop InvalidationWaiters::look_again",
    ),
    (
        "saved, loaded from bytes at random, and copied, by the tests of its own crate (`saved.rs`)",
        "Vgic::load_distributor Vgic::load_its Vgic::load_vcpu Vgic::save_distributor Vgic::save_its \
         Vgic::save_vcpu Vgic::try_copy Pl011::save Psci::save Psci::cores \
         Pl031::save Mmio::save Mmio::go_on_as",
    ),
    (
        "of a disk whose requests are answered later, or of a console, which the tests of their own crate drive with rings \
         at random (`virtio/remote.rs`, `virtio/console.rs`)",
        "Remote:: Request:: Mmio::answer Mmio::is_wanted Mmio::take_request \
         Console:: Mmio::deliver Mmio::next_output Mmio::receives",
    ),
    (
        "a count",
        "Reclaimer::peak_frames Reclaimer::rung Reclaimer::turns Vmids::rollovers Vgic::heap_bytes \
         Vm::vcpu_count",
    ),
    (
        "of what a VM is made of, before it is",
        "Reclaimer::freeing_at_once Reclaimer::with_slice DirtyBitmap::try_new MemSlots:: Prepared:: \
         Stage2::try_new IoBus::try_new",
    ),
    (
        "does what a method of `Vm` does that is called",
        "IoBus::register IoBus::unregister IoBus::insert_eventfd IoBus::remove_eventfd IoBus::find_write \
         IoBus::try_relocate",
    ),
    (
        "takes what only unsafe code makes: a grant, or a `Resident`",
        "Grant:: Stage2::register_holder",
    ),
    (
        "says which domain, root or CPU something is of",
        "::domain Root::top RootRef::is VmidTag::tlbs Translation::cpu Translation::tlbs",
    ),
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

fn is_called(path: &str) -> bool {
    let mut parts = path.rsplit("::");
    let (Some(name), Some(of)) = (parts.next(), parts.next()) else { return false };
    let calls = [format!(".{name}("), format!("{of}::{name}")];
    SOURCES.iter().any(|source| calls.iter().any(|call| source.contains(call)))
}

#[test]
#[cfg_attr(miri, ignore = "reads files, and calls nothing")]
fn each_safe_function_of_the_core_is_called_by_random_programs_or_excused() {
    let mut left = Vec::new();
    let mut idle: Vec<_> = excuses().collect();
    for name in CRATES {
        let listing = format!("{}/../{name}/public-api.txt", env!("CARGO_MANIFEST_DIR"));
        for path in read_to_string(listing).unwrap().lines().filter_map(path) {
            let name = path.rsplit("::").next().unwrap();
            let excused: Vec<_> = excuses().filter(|excused| is(&path, excused)).collect();
            idle.retain(|idle| !excused.contains(idle));
            let is_language = LANGUAGE.split_whitespace().any(|method| method == name);
            if !is_language && excused.is_empty() && !is_called(&path) {
                left.push(path);
            }
        }
    }
    assert!(left.is_empty(), "neither called nor excused: {left:#?}");
    assert!(idle.is_empty(), "excuses for nothing: {idle:?}");
}
