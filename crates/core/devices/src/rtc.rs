//! The PL031 real-time clock as its driver sees it: Arm DDI 0224C.
//!
//! The device has no clock of its own. Each call says which second it is, by the embedder's clock, in seconds since
//! 1970.

mod saved;

pub use saved::STATE;

const DATA: u64 = 0x000;
const MATCH: u64 = 0x004;
const LOAD: u64 = 0x008;
const CONTROL: u64 = 0x00c;
const MASK: u64 = 0x010;
const RAW: u64 = 0x014;
const MASKED: u64 = 0x018;
const CLEAR: u64 = 0x01c;

/// The bytes of its register page.
pub const SIZE: u64 = 0x1000;

/// From 0xfe0 on: part 0x031, designer Arm, revision 1 (QEMU's model has it too), and a `PrimeCell`.
const IDENTIFICATION: [u8; 8] = [0x31, 0x10, 0x14, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// A PL031. It drives one line, of which [`Pl031::interrupt`] is the level: see [`settle`](crate::line::settle).
///
/// ```
/// use mayfly_devices::rtc::Pl031;
///
/// let mut clock = Pl031::new();
/// let now = 1_700_000_000;
/// assert_eq!(clock.read(0, now), 1_700_000_000);
/// clock.write(0x4, 1_700_000_060, now); // an alarm in a minute,
/// clock.write(0x10, 1, now); // unmasked
/// assert_eq!(clock.next_alarm(now), Some(60));
/// clock.advance(now + 60);
/// assert!(clock.interrupt());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pl031 {
    /// What the guest's clock is ahead of the embedder's.
    offset: u32,
    alarm: u32,
    load: u32,
    mask: bool,
    raw: bool,
    /// The second that was looked at last, by the embedder's clock, once there is an alarm.
    seen: Option<u64>,
}

impl Pl031 {
    /// One that shows the embedder's time.
    pub fn new() -> Self {
        Self::default()
    }

    /// The level of its interrupt line.
    pub const fn interrupt(&self) -> bool {
        self.raw && self.mask
    }

    fn time(&self, now: u64) -> u32 {
        (now as u32).wrapping_add(self.offset)
    }

    /// It is `now`: an alarm that was due since the last look is raised.
    pub fn advance(&mut self, now: u64) {
        if let Some(seen) = self.seen {
            let since = self.alarm.wrapping_sub(self.time(seen));
            if since != 0 && u64::from(since) <= now.saturating_sub(seen) {
                self.raw = true;
            }
            self.seen = Some(now.max(seen));
        }
    }

    /// In how many seconds an alarm will be due that the guest will see.
    pub fn next_alarm(&self, now: u64) -> Option<u32> {
        let due = self.alarm.wrapping_sub(self.time(now));
        (self.seen.is_some() && self.mask && !self.raw && due != 0).then_some(due)
    }

    /// Reads the register at `offset` at second `now`. What is reserved reads as zero.
    pub fn read(&mut self, offset: u64, now: u64) -> u32 {
        self.advance(now);
        match offset {
            DATA => self.time(now),
            MATCH => self.alarm,
            LOAD => self.load,
            // It is on, always.
            CONTROL => 1,
            MASK => self.mask.into(),
            RAW => self.raw.into(),
            MASKED => self.interrupt().into(),
            0xfe0..=0xffc if offset.is_multiple_of(4) => {
                IDENTIFICATION[((offset - 0xfe0) / 4) as usize].into()
            }
            _ => 0,
        }
    }

    /// Writes the register at `offset` at second `now`. What is reserved, or only read, ignores it.
    pub fn write(&mut self, offset: u64, value: u32, now: u64) {
        self.advance(now);
        match offset {
            MATCH => {
                self.alarm = value;
                self.raw |= value == self.time(now);
                self.seen = Some(now);
            }
            LOAD => {
                self.load = value;
                self.offset = value.wrapping_sub(now as u32);
                self.raw |= self.seen.is_some() && value == self.alarm;
            }
            MASK => self.mask = value & 1 != 0,
            CLEAR => self.raw &= value & 1 == 0,
            _ => {}
        }
    }
}
