//! The interrupts that come to a processor, as the floors above see them.

use mayfly_x86::bare::{apic, timer};

use super::port;
use crate::bare::processor::own;

/// What an interrupt means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The processor's alarm ([`timer::set_alarm`]).
    Alarm,
    /// A line that is high by what a guest's registers in the processor say. There is none.
    Guest,
    /// Something was typed.
    Console,
    /// One of the machine's own devices on that line may have something to tell ([`own`]).
    Own(u32),
    /// The processor was to leave its guest, and has done so; or there is nothing to do.
    Nothing,
}

/// The vector of an interrupt that has come.
pub(crate) fn acknowledge() -> Option<u32> {
    apic::acknowledge().map(u32::from)
}

/// It was served.
pub(crate) fn deactivate(_number: u32) {
    apic::end();
}

/// What an interrupt means that was just acknowledged, by its vector.
#[inline]
pub(crate) fn meaning(number: u32) -> Meaning {
    const TIMER: u32 = apic::TIMER as u32;
    const KICK: u32 = apic::KICK as u32;
    match number {
        // The guest's has brought it out: its APIC is looked at before it goes on.
        TIMER if timer::has_come() => Meaning::Alarm,
        TIMER | KICK => Meaning::Nothing,
        _ => match number.saturating_sub(apic::FIRST_LINE.into()) {
            port::LINE => Meaning::Console,
            line if own::is_line(line) => Meaning::Own(line),
            _ => Meaning::Nothing,
        },
    }
}
