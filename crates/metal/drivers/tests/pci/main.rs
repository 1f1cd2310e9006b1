//! A PCI bus that a test plays: functions that are what they should be, and what none should be.

mod bars;
mod bus;
mod functions;
mod registers;
