//! What a port may send: so many bytes and packets a second, by a bucket for each (RFC 2697 has such buckets).

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;
/// A bucket holds what may be sent in a tenth of a second.
const PART: u64 = 10;
/// And no less than the longest frame before it is cut, and as many packets as a card takes up at a time.
const LEAST_BYTES: u64 = 1 << 17;
const LEAST_PACKETS: u64 = 64;

/// What a port may send in a second; none is as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { bytes: None, packets: None };
}

/// What a port may still send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets {
    bytes: Option<Bucket>,
    packets: Option<Bucket>,
}

impl Buckets {
    /// Full ones.
    pub(crate) fn new(limits: Limits, now: u64) -> Self {
        let bucket = |rate: Option<u64>, least| rate.map(|rate| Bucket::new(rate, least, now));
        Self {
            bytes: bucket(limits.bytes, LEAST_BYTES),
            packets: bucket(limits.packets, LEAST_PACKETS),
        }
    }

    /// Takes a frame of `len` bytes out, if both have it.
    pub(crate) fn take(&mut self, len: u64, now: u64) -> bool {
        let has = |bucket: &mut Option<Bucket>, count| {
            bucket.as_mut().is_none_or(|bucket| bucket.has(count, now))
        };
        if !has(&mut self.bytes, len) || !has(&mut self.packets, 1) {
            return false;
        }
        for (bucket, count) in [(&mut self.bytes, len), (&mut self.packets, 1)] {
            if let Some(bucket) = bucket {
                bucket.left -= u128::from(count) * SECOND;
            }
        }
        true
    }
}

/// Counts in parts of a second's nanosecond, so that nothing is lost by rounding, however often it is looked at.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In a second.
    rate: u64,
    most: u128,
    left: u128,
    /// When it was filled last.
    filled: u64,
}

impl Bucket {
    fn new(rate: u64, least: u64, now: u64) -> Self {
        let most = u128::from((rate / PART).max(least)) * SECOND;
        Self { rate, most, left: most, filled: now }
    }

    /// Fills it with what has come by `now`. Returns whether it has `count`.
    fn has(&mut self, count: u64, now: u64) -> bool {
        let passed = now.saturating_sub(self.filled);
        let gained = u128::from(passed) * u128::from(self.rate);
        self.left = self.most.min(self.left + gained);
        self.filled = now.max(self.filled);
        self.left >= u128::from(count) * SECOND
    }
}
