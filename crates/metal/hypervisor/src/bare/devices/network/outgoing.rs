//! Frames that leave the machine.

use mayfly_devices::virtio::net::{Frame, Lost, Source};

use super::bytes;
use crate::bare::own::card::OwnCard;

/// The name of the network that leads out of the machine.
pub(crate) const UPLINK: &str = "uplink";

/// Sends a frame, of which nothing is left to be done, by the machine's card. A sender that has too many under way loses
/// it, and holds up nobody.
pub(super) fn send(
    card: &OwnCard,
    sender: u64,
    frame: &Frame<'_>,
    source: &impl Source,
) -> Result<(), Lost> {
    let room = card.room(sender).map_err(|_| Lost::NotWorking)?;
    let mut room = room.ok_or(Lost::NoRoom)?;
    let len = usize::try_from(frame.len()).unwrap_or(usize::MAX);
    match bytes::copy(frame, source, room.frame(len)) {
        Ok(_) => card.send(room),
        Err(why) => {
            card.discard(room);
            return Err(why);
        }
    }
    Ok(())
}
