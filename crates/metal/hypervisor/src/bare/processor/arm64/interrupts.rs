//! The interrupts that come to a processor, as the floors above see them.

use mayfly_arm64::{gic, timer};

use super::shared;
use crate::bare::processor::own;

pub(crate) use mayfly_arm64::gic::{acknowledge, deactivate};

/// What an interrupt means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The processor's alarm ([`timer::set_alarm`]).
    Alarm,
    /// A line that is high by what a guest's registers in the processor say: its timer is due, a performance counter has
    /// overflown, or its list registers are to be looked at. It stays high as long as they are there.
    Guest,
    /// Something was typed.
    Console,
    /// One of the machine's own devices on that line may have something to tell ([`own`]).
    Own(u32),
    /// The processor was to leave its guest, and has done so; or there is nothing to do.
    Nothing,
}

/// What interrupt `number` means.
#[inline]
pub(crate) fn meaning(number: u32) -> Meaning {
    match number {
        timer::EL2_TIMER => Meaning::Alarm,
        gic::KICK => Meaning::Nothing,
        timer::VIRTUAL_TIMER | timer::PHYSICAL_TIMER | gic::COUNTERS | gic::MAINTENANCE => {
            Meaning::Guest
        }
        number if shared::get().uart_interrupt == Some(number) => Meaning::Console,
        number if own::is_line(number) => Meaning::Own(number),
        _ => Meaning::Nothing,
    }
}
