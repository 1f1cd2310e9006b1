//! An exception that the program itself has taken, which is a defect: it says what has happened, and powers the machine off.
//!
//! A thread that overflows its stack has a page fault, for which there is no stack: so that comes as a double fault, which has a
//! stack of its own.

use mayfly_x86::bare::traps::Trap;

use super::map;
use crate::bare::threads::{self, ThisThread};

#[unsafe(no_mangle)]
extern "C" fn mayfly_x86_lost(trap: &Trap) -> ! {
    let is_of_stack =
        |address: u64| threads::is_in_slot(address) || map::guard().contains(&address);
    match trap.address() {
        Some(address) if is_of_stack(address) => {
            panic!("the stack of {ThisThread} has overflowed: {trap}")
        }
        _ => panic!("{trap}, in {ThisThread}"),
    }
}
