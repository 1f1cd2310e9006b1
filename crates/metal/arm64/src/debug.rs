//! The breakpoints and watchpoints of a guest. Its accesses are trapped, and reach only what is kept here: the
//! registers next to them, such as the debugger's channel and its claims, are of no VM.

mod saved;

use crate::sysreg::SysReg;

/// The most of either that the architecture has in its first numbering.
const MOST: usize = 16;

/// `DBGBCR<n>_EL1`: E, PMC, BAS, HMC, SSC, LBN, BT.
const BREAKPOINT_CONTROL: u64 = 0x00ff_e1e7;
/// `DBGWCR<n>_EL1`: E, PAC, LSC, BAS, HMC, SSC, LBN, WT, MASK.
const WATCHPOINT_CONTROL: u64 = 0x1f1f_ffff;

/// One of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    kind: Kind,
    number: usize,
    is_control: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Breakpoint,
    Watchpoint,
}

impl Place {
    /// Which of the registers `register` is, on a processor with so many breakpoints and watchpoints.
    pub fn of(register: SysReg, breakpoints: usize, watchpoints: usize) -> Option<Self> {
        if (register.op0(), register.op1(), register.crn()) != (2, 0, 0) {
            return None;
        }
        let (kind, count) = match register.op2() {
            4 | 5 => (Kind::Breakpoint, breakpoints),
            6 | 7 => (Kind::Watchpoint, watchpoints),
            _ => return None,
        };
        let number = usize::from(register.crm());
        let is_control = register.op2() & 1 == 1;
        (number < count).then_some(Self { kind, number, is_control })
    }

    /// The bits of it that a guest sets.
    const fn bits(self) -> u64 {
        match (self.kind, self.is_control) {
            (Kind::Breakpoint, true) => BREAKPOINT_CONTROL,
            (Kind::Watchpoint, true) => WATCHPOINT_CONTROL,
            (_, false) => !3,
        }
    }
}

/// An address, or a context, and how it is compared.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    value: u64,
    control: u64,
}

/// What they are.
#[derive(Clone, Debug, Default)]
pub struct Debug {
    pub(crate) breakpoints: [Pair; MOST],
    pub(crate) watchpoints: [Pair; MOST],
    /// `MDSCR_EL1` as the guest has it, while its OS lock is on.
    locked: Option<u64>,
}

/// `MDSCR_EL1`: KDE, SS, MDE and the EL0 accesses: not what belongs to a debugger outside.
const CONTROL: u64 = 1 | 1 << 12 | 1 << 13 | 1 << 15;
/// Those of them that enable debug exceptions: SS, KDE, MDE.
const ENABLES: u64 = 1 | 1 << 13 | 1 << 15;
/// `OSLSR_EL1`: there is a lock (`OSLM`), and it is on (OSLK).
const HAS_LOCK: u64 = 1 << 3;
const LOCKED: u64 = 1 << 1;

impl Debug {
    /// What is read of `place`.
    pub fn get(&self, place: Place) -> u64 {
        let pair = match place.kind {
            Kind::Breakpoint => self.breakpoints.get(place.number),
            Kind::Watchpoint => self.watchpoints.get(place.number),
        };
        pair.map_or(0, |pair| if place.is_control { pair.control } else { pair.value })
    }

    /// What is read of `MDSCR_EL1`, where the processor has `present`.
    pub fn control(&self, present: u64) -> u64 {
        self.locked.unwrap_or(present)
    }

    /// Writes `value` to `MDSCR_EL1`. Returns what the processor is to have: nothing that enables debug exceptions while
    /// the OS lock is on.
    pub fn set_control(&mut self, value: u64) -> u64 {
        let value = value & CONTROL;
        if self.locked.is_some() {
            self.locked = Some(value);
            return value & !ENABLES;
        }
        value
    }

    /// What is read of `OSLSR_EL1`.
    pub fn lock(&self) -> u64 {
        HAS_LOCK | if self.locked.is_some() { LOCKED } else { 0 }
    }

    /// Turns the OS lock on or off (`OSLAR_EL1`). Returns what the processor is to have in `MDSCR_EL1`, where it has
    /// `present`.
    pub fn set_lock(&mut self, on: bool, present: u64) -> u64 {
        let control = self.control(present);
        self.locked = on.then_some(control);
        if on { control & !ENABLES } else { control }
    }

    /// Whether `place` says that a breakpoint or a watchpoint is enabled (E).
    pub fn enables(&self, place: Place) -> bool {
        place.is_control && self.get(place) & 1 == 1
    }

    /// Writes `value` to `place`.
    pub fn set(&mut self, place: Place, value: u64) {
        let pair = match place.kind {
            Kind::Breakpoint => self.breakpoints.get_mut(place.number),
            Kind::Watchpoint => self.watchpoints.get_mut(place.number),
        };
        if let Some(pair) = pair {
            let field = if place.is_control { &mut pair.control } else { &mut pair.value };
            *field = value & place.bits();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn register(number: u8, op2: u8) -> SysReg {
        SysReg::new(2, 0, 0, number, op2)
    }

    #[test]
    fn each_register_keeps_what_was_written_to_it_and_no_other_changes() {
        let all = || (0..6).flat_map(|number| (4..8).map(move |op2| register(number, op2)));
        let places = || all().filter_map(|register| Place::of(register, 6, 4));
        let mut debug = Debug::default();
        assert_eq!(places().count(), 2 * 6 + 2 * 4);
        for (number, place) in places().enumerate() {
            debug.set(place, (number as u64) << 16);
        }
        let found: std::vec::Vec<_> = places().map(|place| debug.get(place)).collect();
        for (number, value) in found.iter().enumerate() {
            assert_eq!(*value, (number as u64) << 16, "register {number}");
        }
    }

    #[test]
    fn a_control_register_with_its_enable_bit_enables_and_nothing_else_does() {
        let place = |op2| Place::of(register(0, op2), 6, 4).unwrap();
        let mut debug = Debug::default();
        for op2 in 4..8 {
            debug.set(place(op2), !1);
            assert!(!debug.enables(place(op2)));
            debug.set(place(op2), u64::MAX);
            assert_eq!(debug.enables(place(op2)), op2 & 1 == 1);
        }
    }

    #[test]
    fn the_os_lock_keeps_debug_exceptions_from_the_guest_and_what_it_has_chosen_for_it() {
        let mut debug = Debug::default();
        let control = debug.set_control(u64::MAX);
        assert_eq!((debug.lock(), control), (8, CONTROL));
        let present = debug.set_lock(true, control);
        assert_eq!((debug.lock(), present), (8 | 2, CONTROL & !ENABLES));
        assert_eq!(debug.control(present), CONTROL, "as the guest has written it");
        assert_eq!(debug.set_lock(true, present), CONTROL & !ENABLES, "once more");
        assert_eq!(debug.set_control(ENABLES), 0);
        assert_eq!(debug.set_lock(false, 0), ENABLES);
        assert_eq!((debug.lock(), debug.control(7)), (8, 7), "the processor has it again");
    }

    #[test]
    fn what_the_processor_does_not_have_is_no_place() {
        assert!(Place::of(register(5, 5), 6, 4).is_some());
        assert_eq!(Place::of(register(6, 5), 6, 4), None);
        assert_eq!(Place::of(register(4, 6), 6, 4), None);
        assert_eq!(Place::of(register(2, 2), 16, 16), None, "MDSCR_EL1 is not one of them");
        assert_eq!(Place::of(SysReg::new(2, 0, 1, 0, 4), 16, 16), None, "OSLAR_EL1");
    }

    proptest! {
        #[test]
        fn reserved_bits_read_as_zero(number in 0_u8..16, op2 in 4_u8..8, value: u64) {
            let place = Place::of(register(number, op2), 16, 16).unwrap();
            let mut debug = Debug::default();
            debug.set(place, value);
            let reserved = match op2 { 5 => !BREAKPOINT_CONTROL, 7 => !WATCHPOINT_CONTROL, _ => 3 };
            prop_assert_eq!(debug.get(place), value & !reserved);
        }
    }
}
