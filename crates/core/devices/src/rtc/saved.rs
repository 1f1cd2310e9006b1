//! A clock, as it is saved.

use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use super::Pl031;

/// The section that [`Pl031::save`] writes.
pub const STATE: Kind = Kind::new("pl031", 1);

impl Pl031 {
    /// Writes what it is into a section of kind [`STATE`].
    pub fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u32(self.offset);
        to.u32(self.alarm);
        to.u32(self.load);
        to.flag(self.mask);
        to.flag(self.raw);
        to.flag(self.seen.is_some());
        to.u64(self.seen.unwrap_or(0));
    }

    /// One that shows the embedder's time with the same difference, and has the same alarm. An alarm that has become due
    /// since it was saved is raised by the next look at it.
    ///
    /// # Errors
    ///
    /// [`Error`] names a field that no clock could have come to.
    pub fn load(mut from: SectionReader<'_>) -> Result<Self, Error> {
        let offset = from.u32("difference")?;
        let alarm = from.u32("RTCMR")?;
        let load = from.u32("RTCLR")?;
        let mask = from.flag("RTCIMSC")?;
        let raw = from.flag("RTCRIS")?;
        let has_seen = from.flag("has an alarm")?;
        let seen = from.u64("last look")?;
        from.check("last look", seen, has_seen || seen == 0)?;
        from.end()?;
        Ok(Self { offset, alarm, load, mask, raw, seen: has_seen.then_some(seen) })
    }
}
