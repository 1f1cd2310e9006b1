//! What the user types at the console of a VM by a command.

use super::ends;
use crate::bare::processor::timer;
use crate::bare::threads::console::say;
use crate::bare::vm::Machine;

/// Types a line at the console of a VM.
pub(super) fn type_for(machine: &Machine, text: &str) {
    for byte in text.bytes().chain([b'\r']) {
        // What is typed is for the run that is about to begin, where one is to be reset. A guest that takes no byte has a full
        // FIFO, or is just being frozen.
        while !machine.is_in_run() || machine.uart.typed(&[byte]) == 0 {
            if !machine.is_running() {
                return say!("mayfly: {} has stopped, and is typed nothing", machine.plan.name);
            }
            ends::wait(timer::ticks() + timer::frequency() / 1000);
        }
    }
}
