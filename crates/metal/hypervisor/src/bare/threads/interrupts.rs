//! What is done with an interrupt.

use super::bell::Bell;
use super::course::{has_begun, leave, tick};
use super::waking::wake;
use crate::bare::processor::interrupts::{Meaning, acknowledge, deactivate, meaning};
use crate::bare::processor::{masked, own, serial, serve_others};

/// Each rings when one of the machine's own devices has something to tell.
pub(crate) static OWN: [Bell; own::MOST] = [const { Bell::new() }; own::MOST];

/// Serves the interrupts that are pending on this processor.
pub(crate) fn take() {
    masked::look();
    while let Some(number) = acknowledge() {
        handle(number);
    }
    // Behind them: another processor that wants something interrupts this one once. If that interrupt is among those that
    // were served, what is wanted is seen here; if it comes later, it is still pending.
    serve_others();
}

/// As [`take`]; does nothing on a processor that is not prepared yet. The thread keeps its processor.
pub(crate) fn look() {
    if has_begun() {
        take();
    }
}

/// Serves one interrupt that was acknowledged, and that no guest is to see.
pub(crate) fn handle(number: u32) {
    match meaning(number) {
        Meaning::Alarm => tick(),
        // Of the guest that this thread has left, or of one that was here before. It comes again when the registers of
        // the guest that it is due for are back in the processor.
        Meaning::Guest => leave(),
        Meaning::Console => {
            serial::receive();
            wake(&serial::TYPING);
        }
        Meaning::Own(line) => own::serve(line, |which| OWN[which].ring()),
        Meaning::Nothing => {}
    }
    deactivate(number);
    // The caller looks whether there is another.
    masked::look();
}
