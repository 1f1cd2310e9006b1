//! The machine of a guest on arm64, as it is saved: what its processors are, and where its virtual counter is.
//!
//! A state is loaded on a machine on which guests read the same ID registers, and whose counter has the same frequency: a
//! guest looks at these when it boots, and not again. `CNTVCT_EL0` goes on from where it was ([`offset`]), whatever the
//! physical counter shows. `CNTPCT_EL0` is the machine's own and is not put back: a guest that uses the physical timer sees
//! the time that it was frozen, or another machine's counter.

use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use crate::cache_type::CacheType;
use crate::id;
use crate::processor::REGISTERS;

/// The section that [`Machine::save`] writes.
pub const STATE: Kind = Kind::new("arm64", 1);

/// What a guest finds on its machine, and relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The ID registers as a guest reads them ([`id::visible`]): those of [`REGISTERS`].
    pub ids: [u64; REGISTERS.len()],
    /// What holds of its caches.
    pub caches: CacheType,
    /// `CNTFRQ_EL0`, in ticks a second.
    pub frequency: u64,
}

impl Machine {
    /// A machine whose processors have `ids` in common, in the order of [`REGISTERS`], for a VM with so many bits of
    /// physical address as `pa_range` says.
    pub fn new(
        ids: &[u64; REGISTERS.len()],
        pa_range: u64,
        caches: CacheType,
        frequency: u64,
    ) -> Self {
        let mut seen = *ids;
        for (register, value) in REGISTERS.into_iter().zip(&mut seen) {
            *value = id::visible(register, *value, pa_range);
        }
        Self { ids: seen, caches, frequency }
    }

    /// Writes it into a section of kind [`STATE`], with what the virtual counter of the guest showed when it was stopped:
    /// the physical one's ticks, less the offset.
    pub fn save(&self, virtual_count: u64, to: &mut SectionWriter<'_, '_>) {
        for value in self.ids {
            to.u64(value);
        }
        to.u64(self.caches.bits());
        to.u64(self.frequency);
        to.u64(virtual_count);
    }

    /// Holds what was saved against this machine. Returns what the virtual counter showed.
    ///
    /// # Errors
    ///
    /// [`Error`] names what is another there.
    pub fn load(&self, mut from: SectionReader<'_>) -> Result<u64, Error> {
        for (number, value) in (0..).zip(self.ids) {
            from.of(number);
            from.expect("ID register", value)?;
        }
        from.of_all();
        from.expect("CTR_EL0", self.caches.bits())?;
        from.expect("CNTFRQ_EL0", self.frequency)?;
        let virtual_count = from.u64("CNTVCT_EL0")?;
        from.end()?;
        Ok(virtual_count)
    }
}

/// `CNTVOFF_EL2` with which the virtual counter shows `virtual_count` at the moment at which the physical one shows
/// `ticks`. It wraps where the physical counter is behind, as the hardware's subtraction does.
pub const fn offset(ticks: u64, virtual_count: u64) -> u64 {
    ticks.wrapping_sub(virtual_count)
}

#[cfg(test)]
mod tests {
    use mayfly_state::{State, Writer};
    use proptest::prelude::*;
    use std::string::ToString;

    use super::*;

    fn machine() -> Machine {
        // A Cortex-A72's ID registers, in part.
        let ids = [0x2222, 0, 0x1030_5106, 0x1_1120, 0, 0, 0x1124, 0, 0];
        Machine::new(&ids, 2, CacheType::new(0x8444_c004), 62_500_000)
    }

    fn load(saved: &Machine, on: &Machine) -> Result<u64, Error> {
        let mut buffer = [0; 256];
        let mut writer = Writer::new(&mut buffer);
        writer.section(STATE, 0, |to| saved.save(0x1234, to));
        let len = writer.finish().unwrap();
        on.load(State::open(&buffer[..len])?.sections().take(STATE, 0)?)
    }

    #[test]
    fn a_guest_goes_on_where_it_reads_the_same_and_nowhere_else() {
        let machine = machine();
        assert_eq!(load(&machine, &machine), Ok(0x1234));
        for number in 0..REGISTERS.len() {
            let mut other = machine;
            other.ids[number] ^= 1 << 20;
            let error = load(&machine, &other).unwrap_err();
            assert!(error.to_string().ends_with(&std::format!("as ID register of {number}")));
        }
        let other = Machine { frequency: 1_000_000_000, ..machine };
        let error = load(&machine, &other).unwrap_err().to_string();
        assert_eq!(error, "section `arm64` 0 has 0x3b9aca0 as CNTFRQ_EL0");
        assert!(load(&machine, &Machine { caches: CacheType::new(0), ..machine }).is_err());
    }

    #[test]
    fn what_guests_do_not_see_of_a_processor_may_differ() {
        let [mut ids, other] = [[0x1111; REGISTERS.len()]; 2];
        // RAS, in `ID_AA64PFR0_EL1`.
        ids[0] |= 1 << 28;
        let caches = CacheType::new(0x8444_c004);
        let of = |ids| Machine::new(ids, 2, caches, 1);
        assert_eq!(of(&ids), of(&other));
    }

    proptest! {
        #[test]
        fn the_virtual_counter_goes_on_without_a_jump_whatever_the_physical_one_shows(
            stopped: u64,
            before: u64,
            started: u64,
            later: u64,
        ) {
            let shown = |ticks: u64, offset: u64| ticks.wrapping_sub(offset);
            let virtual_count = shown(stopped, before);
            let after = offset(started, virtual_count);
            prop_assert_eq!(shown(started, after), virtual_count);
            prop_assert_eq!(shown(started.wrapping_add(later), after), virtual_count.wrapping_add(later));
        }
    }
}
