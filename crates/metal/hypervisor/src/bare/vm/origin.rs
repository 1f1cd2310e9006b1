//! Where the devices come from of a machine that goes on as another one was.

use alloc::sync::Arc;

use crate::bare::devices::Devices;
use crate::bare::devices::frames::Frames;
use crate::bare::devices::network::Seat;
use crate::bare::world::World;

/// Where the devices come from of a machine that goes on.
#[expect(clippy::large_enum_variant, reason = "it is passed on once, and kept nowhere")]
pub(crate) enum Origin<'a> {
    /// They are made, with that disk; and with that seat, if it is a fork of a service.
    Made(&'a Arc<World>, Option<Frames>, Option<Seat>),
    /// They are those that it had.
    Kept(&'a Arc<Devices>),
}
