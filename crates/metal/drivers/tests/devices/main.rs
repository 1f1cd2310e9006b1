//! The drivers, and devices that a test plays: what they should do, and what no device should.

mod card;
mod console;
mod disk;
mod fake;
mod rooms;
