//! What a vCPU has is saved and loaded, all of the table of registers; and nothing is loaded that a guest could not have.

use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use mayfly_state::{State, Writer};
use proptest::prelude::*;

use super::*;
use crate::counters::{MOST, Place};
use crate::sysreg::SysReg;
use crate::table::{ROWS, Row, Treatment};

const VMPIDR: u64 = 1 << 31 | 3;
const OFFERED: Offered = Offered { version: 4, count: 6, events: [u64::MAX; 2] };
const ALLOWED: Allowed = Allowed { counters: Some(OFFERED), aarch32: false, keys: true };
/// What each vCPU of the machine has.
const OWN: Kinds = Kinds::ERROR_RECORD.with(Kinds::BARRIERS).with(Kinds::DIFFERENT);

fn save(general: &Registers, context: &Context, owed: Owed) -> Vec<u8> {
    let mut bytes = vec![0; 0x1000];
    let mut writer = Writer::new(&mut bytes);
    writer.section(STATE, 3, |to| Vcpu { general, context }.save(owed, to));
    let len = writer.finish().unwrap();
    bytes.truncate(len);
    bytes
}

type Loaded = (Registers, Context, Owed);

fn load(bytes: &[u8], allowed: &Allowed) -> Result<Loaded, Error> {
    let (mut general, mut context) = (Registers::default(), Context::new(VMPIDR, 5, OWN));
    let from = State::open(bytes)?.sections().take(STATE, 3)?;
    let vcpu = Vcpu { general: &mut general, context: &mut context };
    let owed = vcpu.load(allowed, from)?;
    Ok((general, context, owed))
}

/// What a guest writes by instructions that trap: a register and a value.
type Writes = Vec<(u8, u8, u64)>;

/// A vCPU that has run: `words` are what its registers have that take anything.
fn vcpu(words: &[u64], mode: u64, writes: &Writes, owed: Owed) -> Loaded {
    let mut words = words.iter().copied().cycle();
    let mut next = || words.next().unwrap_or(0);
    let mut context = Context::new(VMPIDR, 5, OWN);
    let mut general = Registers { x: [0; 31].map(|_: u64| next()), pc: next(), pstate: 0 };
    general.pstate = next() & 0xffff_ffe0 | mode;
    context.banked.values = context.banked.values.map(|_| next());
    context.floating_point.status = next();
    context.floating_point.control = next();
    context.floating_point.q = [0; 32].map(|_: u64| u128::from(next()) << 64 | u128::from(next()));
    context.timer = Timer { control: next() & 3, compare: next() };
    let optional = &mut context.optional;
    optional.keys = [0; 10].map(|_: u64| next());
    optional.error_record = next();
    optional.tpidr2 = next();
    optional.physical_timer = Timer { control: next() & 3, compare: next() };
    *mdscr(&mut context.banked) = optional.debug.set_control(next());
    for (kind, number, value) in writes {
        write(&mut context, *kind, *number, *value);
    }
    (general, context, owed)
}

fn mdscr(banked: &mut Banked) -> &mut u64 {
    &mut banked.values[Banked::REGISTERS.len() - 1]
}

fn write(context: &mut Context, kind: u8, number: u8, value: u64) {
    let optional = &mut context.optional;
    match kind {
        0..4 => {
            let register = SysReg::new(2, 0, 0, number % 16, 4 + kind);
            let place = crate::debug::Place::of(register, 16, 16).unwrap();
            optional.debug.set(place, value);
            optional.has = optional.has.with(Kinds::BREAKPOINTS);
        }
        4 => {
            let present = context.banked.mdscr();
            *mdscr(&mut context.banked) = optional.debug.set_lock(value & 1 == 1, present);
        }
        5 => *mdscr(&mut context.banked) = optional.debug.set_control(value),
        _ => {
            let places = [
                Place::Control,
                Place::Enabled { set: true },
                Place::Overflows { set: true },
                Place::Interrupts { set: true },
                Place::Increment,
                Place::Select,
                Place::Cycles,
                Place::CycleFilter,
                Place::User,
                Place::Count(usize::from(number) % MOST),
                Place::Kind(usize::from(number) % MOST),
            ];
            let place = places[usize::from(kind) % places.len()];
            optional.counters.write(place, value, false, &OFFERED).unwrap();
            optional.offered = OFFERED;
            optional.has = optional.has.with(Kinds::COUNTERS).with(Kinds::PHYSICAL_TIMER);
        }
    }
}

fn any_owed() -> impl Strategy<Value = Owed> {
    let abort = any::<[bool; 3]>().prop_map(|[fetch, walk, write]| Exception::ExternalAbort {
        fetch,
        walk,
        write,
    });
    let exception =
        prop_oneof![Just(Exception::Undefined), Just(Exception::UnsupportedAccess), abort];
    (any::<bool>(), prop::option::of((exception, any::<u64>())))
        .prop_map(|(error, exception)| Owed { error, exception })
}

fn any_vcpu() -> impl Strategy<Value = Loaded> {
    let words = prop::collection::vec(any::<u64>(), 1..40);
    let mode = prop::sample::select(vec![EL0, EL1T, EL1H]);
    let writes = prop::collection::vec((0..20_u8, any::<u8>(), any::<u64>()), 0..30);
    (words, mode, writes, any_owed())
        .prop_map(|(words, mode, writes, owed)| vcpu(&words, mode, &writes, owed))
}

/// What is in the section of a state.
fn contents(bytes: &[u8]) -> Vec<u8> {
    let mut from = State::open(bytes).unwrap().sections().take(STATE, 3).unwrap();
    let mut contents = Vec::new();
    while let Ok(byte) = from.u8("byte") {
        contents.push(byte);
    }
    contents
}

fn state(contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; contents.len() + 128];
    let mut writer = Writer::new(&mut bytes);
    writer.section(STATE, 3, |to| to.bytes(contents));
    let len = writer.finish().unwrap();
    bytes.truncate(len);
    bytes
}

/// Where some fields are, in words of 64 bits: after MPIDR, x0 to x30 and pc; then the banked ones.
const PSTATE: usize = 33 * 8;
const BANKED: usize = PSTATE + 8;
const TIMER: usize = BANKED + 8 * Banked::REGISTERS.len() + 16 + 32 * 16;
const OWED: usize = TIMER + 16;
const KINDS: usize = OWED + 10;
/// Behind zeroes up to a multiple of 8 bytes.
const KEYS_AT: usize = (KINDS + 4).next_multiple_of(8);
const DEBUG: usize = KEYS_AT + 8 * 12 + 16;
const LOCK: usize = DEBUG + 4;
const BEHIND: usize = DEBUG + 8;
const PAIRS: usize = BEHIND + 8;
/// The same of a vCPU that has no breakpoints and watchpoints, and of one that has two.
const COUNTERS: usize = PAIRS;
const COUNTERS_OF_USED: usize = PAIRS + 2 * 16;
/// Where the mask of the counters of events is, and where they begin, from there.
const EVENT_MASK: usize = 8 + 5 * 4 + 2;
const EVENTS: usize = EVENT_MASK + 1;

/// What is said of a vCPU after its reset that has `value` at `at`.
fn with(at: usize, value: &[u8], allowed: &Allowed) -> Result<(), String> {
    changed(&Context::new(VMPIDR, 5, OWN), at, value, allowed)
}

/// A vCPU with a breakpoint, a watchpoint, and two counters.
fn used() -> Context {
    let mut context = Context::new(VMPIDR, 5, OWN);
    for (kind, number) in [(1, 0), (3, 15)] {
        write(&mut context, kind, number, 1);
    }
    for number in [0, 2] {
        write(&mut context, 20, number, 1);
    }
    context
}

/// The same of that one.
fn with_used(at: usize, value: &[u8], allowed: &Allowed) -> Result<(), String> {
    changed(&used(), at, value, allowed)
}

fn changed(context: &Context, at: usize, value: &[u8], allowed: &Allowed) -> Result<(), String> {
    let general = Registers { pstate: 0x3c5, ..Registers::default() };
    let mut contents = contents(&save(&general, context, Owed::default()));
    contents[at..at + value.len()].copy_from_slice(value);
    load(&state(&contents), allowed).map(|_| ()).map_err(|error| error.to_string())
}

fn refused<T>(field: &str, value: u64) -> Result<T, String> {
    Err(std::format!("section `arm64-vcpu` 3 has {value:#x} as {field}"))
}

#[test]
fn a_state_that_would_go_on_outside_of_the_guest_is_refused() {
    let pstate =
        |value: u64, aarch32| with(PSTATE, &value.to_le_bytes(), &Allowed { aarch32, ..ALLOWED });
    for mode in 0..32 {
        let is_guests = matches!(mode, 0 | 4 | 5);
        let expected = if is_guests { Ok(()) } else { refused("PSTATE", mode) };
        assert_eq!(pstate(mode, false), expected, "mode {mode:#x}");
        assert_eq!(pstate(mode, true).is_ok(), is_guests || mode == 0x10, "with AArch32");
    }
    assert_eq!(pstate(1 << 33 | 5, false), refused("PSTATE", 1 << 33 | 5));
    assert_eq!(pstate(1 << 32 | 5, false), Ok(()));
}

#[test]
fn what_a_guests_own_write_would_not_have_kept_is_refused() {
    let word = |at: usize, value: u64| with(at, &value.to_le_bytes(), &ALLOWED);
    assert_eq!(word(0, VMPIDR + 1), refused("MPIDR_EL1", VMPIDR + 1));
    assert_eq!(word(TIMER, 4), refused("timer control", 4));
    let debug = |at: usize, value: u64| with_used(PAIRS + at, &value.to_le_bytes(), &ALLOWED);
    assert_eq!(debug(0, 4), Ok(()));
    assert_eq!(debug(0, 1), refused("DBGBVR of 0", 1));
    assert_eq!(debug(8, 1 << 63), refused("DBGBCR of 0", 1 << 63));
    assert_eq!(debug(16 + 8, 1 << 29), refused("DBGWCR of 15", 1 << 29));
    assert_eq!(debug(16 + 8, 0), refused("DBGWCR of 15", 0), "it is as after a reset");
    assert_eq!(word(BEHIND, 1), refused("MDSCR_EL1 behind the lock", 1));
    let mdscr = BANKED + 8 * (Banked::REGISTERS.len() - 1);
    assert_eq!(word(mdscr, 1 << 14), refused("MDSCR_EL1", 1 << 14), "a debugger's, outside");
    assert_eq!(with(LOCK, &[2], &ALLOWED), refused("OSLSR_EL1", 2));
    assert_eq!(with(OWED, &[2], &ALLOWED), refused("SError", 2));
    assert_eq!(with(OWED + 1, &[3], &ALLOWED), refused("exception", 3));
    assert_eq!(with(OWED + 1, &[16], &ALLOWED), refused("exception", 16));
    assert_eq!(with(OWED + 2, &[1], &ALLOWED), refused("exception's address", 1));
}

#[test]
fn the_os_lock_keeps_its_enables_out_of_the_processor() {
    let mut context = Context::new(VMPIDR, 5, OWN);
    *mdscr(&mut context.banked) = 1 << 15;
    context.optional.debug.set_lock(true, 1 << 15);
    let bytes = save(&Registers { pstate: 5, ..Registers::default() }, &context, Owed::default());
    let error = load(&bytes, &ALLOWED).unwrap_err().to_string();
    assert_eq!(Err::<(), _>(error), refused("MDSCR_EL1", 1 << 15));
}

#[test]
fn a_counter_that_would_count_at_el2_or_that_there_is_not_is_refused() {
    let nsh = 1_u32 << 27;
    let at = |at: usize| COUNTERS_OF_USED + at;
    let event = |value: u32| with_used(at(EVENTS + 8), &value.to_le_bytes(), &ALLOWED);
    assert_eq!(event(nsh), refused("PMEVTYPER of 0", nsh.into()));
    assert_eq!(event(0xc000_ffff), Ok(()));
    assert_eq!(with_used(at(EVENTS), &[0], &ALLOWED), refused("PMEVTYPER of 0", 0));
    let mask = |mask: u8, allowed| with(COUNTERS + EVENT_MASK, &[mask], allowed);
    let none = Allowed { counters: None, ..ALLOWED };
    assert_eq!(mask(1, &none), refused("counters of events", 1));
    let two = Allowed { counters: Some(Offered { count: 2, ..OFFERED }), ..ALLOWED };
    assert_eq!(mask(4, &two), refused("counters of events", 4));
    assert_eq!(mask(1 << MOST, &ALLOWED), refused("counters of events", 1 << MOST));
    let filter = COUNTERS + 8;
    for (at, field) in [(0, "PMCCFILTR_EL0"), (8, "PMCNTENSET_EL0"), (16, "PMINTENSET_EL1")] {
        assert_eq!(with(filter + at, &[0x40], &ALLOWED), refused(field, 0x40));
    }
    assert_eq!(with(filter + 21, &[0x10], &ALLOWED), refused("PMUSERENR_EL0", 0x10));
}

#[test]
fn what_a_vcpu_has_not_used_takes_no_bytes() {
    let bytes =
        |context: &Context| contents(&save(&Registers::default(), context, Owed::default())).len();
    let fresh = bytes(&Context::new(VMPIDR, 5, OWN));
    assert_eq!(fresh, COUNTERS + EVENTS);
    assert_eq!(bytes(&used()), fresh + 2 * 16 + 2 * 12);
    let mut cleared = used();
    for (kind, number) in [(1, 0), (3, 15), (20, 0), (20, 2)] {
        write(&mut cleared, kind, number, 0);
    }
    assert_eq!(bytes(&cleared), fresh, "as a kernel leaves them that clears them");
}

#[test]
fn registers_that_this_machine_has_not_are_refused() {
    let kinds = |kinds: Kinds, allowed: &Allowed| with(KINDS, &kinds.bits().to_le_bytes(), allowed);
    let used = Kinds::BREAKPOINTS.with(Kinds::PHYSICAL_TIMER);
    let own = OWN.among(OF_MACHINE);
    assert_eq!(kinds(own.with(used), &ALLOWED), Ok(()));
    for other in [used, own.with(Kinds::TPIDR2), own.with(Kinds::BARRIERS)] {
        assert_eq!(kinds(other, &ALLOWED), refused("kinds of registers", other.bits().into()));
    }
    let without_counters = Allowed { counters: None, ..ALLOWED };
    let without_keys = Allowed { keys: false, ..ALLOWED };
    for (kind, without) in [(Kinds::COUNTERS, without_counters), (Kinds::KEYS, without_keys)] {
        let used = own.with(kind);
        assert_eq!(kinds(used, &ALLOWED), Ok(()));
        assert_eq!(kinds(used, &without), refused("kinds of registers", used.bits().into()));
    }
}

/// Where a row of the table is in a saved state, if it is not one of [`Banked`].
fn place(row: &Row) -> Option<&'static str> {
    let name = row.name;
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if starts(&["DBGB", "DBGW", "OSLAR", "OSLSR"]) {
        Some("debug")
    } else if starts(&["PMINTEN", "PMMIR", "PMCR", "PMCCNTR", "PMUSERENR", "PMOVSSET", "PMEV"]) {
        Some("counters")
    } else if starts(&["APIA", "APDA", "APGA"]) {
        Some("keys")
    } else if starts(&["ICC_", "ISR_EL1"]) {
        Some("the GIC's sections")
    } else if starts(&["SPSel", "CurrentEL", "NZCV", "DAIF", "DIT", "SSBS", "TCO"])
        || matches!(name, "PAN" | "UAO" | "PM")
    {
        Some("PSTATE")
    } else {
        match name {
            "MPIDR_EL1" => Some("MPIDR"),
            "DISR_EL1" | "TPIDR2_EL0" | "FPCR" | "FPSR" => Some("a field of its own"),
            "ID_*_EL1" | "CNTVCT_EL0" | "CNTVCTSS_EL0" => Some("the machine's section"),
            "CNTP_TVAL_EL0, CNTP_CTL_EL0, CNTP_CVAL_EL0" => Some("the physical timer"),
            "CNTV_TVAL_EL0" | "CNTV_CTL_EL0" | "CNTV_CVAL_EL0" => Some("the virtual timer"),
            _ => None,
        }
    }
}

#[test]
fn each_register_of_the_table_that_a_vcpu_has_is_saved() {
    let banked: BTreeSet<_> = Banked::REGISTERS.iter().copied().collect();
    let is_banked = |row: &Row| banked.iter().any(|register| row.has(*register));
    let has = |row: &Row| matches!(row.treatment, Treatment::Switched | Treatment::Trapped);
    for row in ROWS.iter().filter(|row| has(row)) {
        assert_ne!(is_banked(row), place(row).is_some(), "{} is saved once", row.name);
    }
    // The stack pointer of EL1 is a register of EL2, by its number.
    let sp_el1 = SysReg::new(3, 4, 4, 1, 0);
    for register in Banked::REGISTERS.iter().filter(|register| **register != sp_el1) {
        assert!(ROWS.iter().any(|row| has(row) && row.has(*register)), "{register}");
    }
}

proptest! {
    #[test]
    fn a_vcpu_is_loaded_as_it_was_saved((general, context, owed) in any_vcpu()) {
        let bytes = save(&general, &context, owed);
        let (other, loaded, owes) = load(&bytes, &ALLOWED).unwrap();
        prop_assert_eq!((other, owes), (general, owed));
        prop_assert_eq!(loaded.banked, context.banked);
        prop_assert_eq!(loaded.floating_point, context.floating_point);
        prop_assert_eq!(std::format!("{:?}", loaded.optional), std::format!("{:?}", context.optional));
        prop_assert_eq!((loaded.timer, loaded.timer_offset), (context.timer, 5));
        prop_assert_eq!(save(&other, &loaded, owes), bytes);
    }

    #[test]
    fn a_forged_vcpu_is_refused_or_a_guest(
        (general, context, owed) in any_vcpu(),
        forged in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()]),
            1..4,
        ),
        len in prop_oneof![9 => Just(0_isize), 1 => -9..9_isize],
        aarch32: bool,
    ) {
        let mut contents = contents(&save(&general, &context, owed));
        for (at, byte) in forged {
            let at = at.index(contents.len());
            contents[at] = byte;
        }
        contents.resize(contents.len().saturating_add_signed(len), 0);
        let bytes = state(&contents);
        if let Ok((general, context, owed)) = load(&bytes, &Allowed { aarch32, ..ALLOWED }) {
            prop_assert_eq!(save(&general, &context, owed), bytes);
            prop_assert!(is_guests(general.pstate, aarch32));
            let has = context.optional.has;
            prop_assert_eq!(has.among(OF_MACHINE), OWN.among(OF_MACHINE));
        }
    }

    #[test]
    fn a_timer_is_due_when_its_counter_has_come_to_its_value(
        control in 0..4_u64,
        shown: u64,
        compare: u64,
        now in prop_oneof![any::<u64>(), 0..1000_u64],
    ) {
        // The counter shows `shown` now: whatever the offset is by which it does.
        let offset = now.wrapping_sub(shown);
        let due = Timer { control, compare }.due(offset, now);
        prop_assert_eq!(due.is_some(), control == 1, "on, and not masked");
        if let Some(due) = due {
            let shown_then = u128::from(shown) + u128::from(due - now);
            let (has_come, is_early) = (shown_then >= compare.into(), due == now);
            prop_assert!(has_come || due == u64::MAX);
            prop_assert!(is_early || shown_then <= compare.into(), "no later than that");
        }
    }
}
