//! Addresses for the registers of functions (BARs), out of the windows of their bus.

use super::NotUsed;

/// The most windows of a bus.
const MOST: usize = 8;
/// The most BARs of a function (PCI 3.0, 6.2.5.1).
pub const MOST_BARS: usize = 6;
/// No two BARs share a page: each is mapped by itself.
const PAGE: u64 = 4096;
/// The smallest BAR in memory.
const SMALLEST: u64 = 16;
/// The end of what a BAR of 32 bits can say.
const NARROW_END: u64 = 1 << 32;

/// Addresses of a bus that processors reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Where it begins, as the bus sees it.
    pub bus: u64,
    /// Where it begins, as processors see it.
    pub cpu: u64,
    /// How long it is.
    pub bytes: u64,
    /// Reads have no effect there, and may be done ahead: so only such BARs may be there.
    pub is_prefetchable: bool,
}

/// What a BAR asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its size, by which it is aligned.
    pub bytes: u64,
    /// It has 64 bits, and not 32.
    pub is_wide: bool,
    /// Reads have no effect.
    pub is_prefetchable: bool,
}

/// Where a BAR is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// As the bus sees it.
    pub bus: u64,
    /// As processors see it.
    pub cpu: u64,
    /// How long it is.
    pub bytes: u64,
}

/// The windows of a bus, and how much of each is given out.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    all: [Window; MOST],
    /// How much of each, from its start on.
    given: [u64; MOST],
}

impl Windows {
    /// The first eight of these windows of which BARs can be mapped page by page. They do not overlap.
    pub fn new(windows: impl IntoIterator<Item = Window>) -> Self {
        let mut all = [Window::default(); MOST];
        let is_usable = |window: &Window| {
            window.bus.wrapping_sub(window.cpu).is_multiple_of(PAGE)
                && window.bus.checked_add(window.bytes).is_some()
                && window.cpu.checked_add(window.bytes).is_some()
        };
        for (place, window) in all.iter_mut().zip(windows.into_iter().filter(is_usable)) {
            *place = window;
        }
        Self { all, given: [0; MOST] }
    }

    /// Gives addresses to all BARs of a function, or to none.
    ///
    /// # Errors
    ///
    /// [`NotUsed::Bar`], [`NotUsed::NoRoom`].
    pub fn take_all(
        &mut self,
        bars: &[Option<Bar>; MOST_BARS],
    ) -> Result<[Option<Place>; MOST_BARS], NotUsed> {
        let mut trial = *self;
        let mut places = [None; MOST_BARS];
        for (number, (place, bar)) in places.iter_mut().zip(bars).enumerate() {
            let Some(bar) = bar else { continue };
            if !bar.bytes.is_power_of_two() || bar.bytes < SMALLEST {
                return Err(NotUsed::Bar(number));
            }
            *place = Some(trial.take(bar).ok_or(NotUsed::NoRoom(number))?);
        }
        *self = trial;
        Ok(places)
    }

    /// Gives addresses to a BAR, whose size is a power of two: out of a window that only a wide one reaches, if it can be
    /// there, and out of another otherwise.
    pub fn take(&mut self, bar: &Bar) -> Option<Place> {
        let is_high = |window: &Window| window.bus >= NARROW_END;
        let of = |this: &mut Self, wants_high: bool| {
            (0..MOST).find_map(|number| {
                let is_meant = is_high(&this.all[number]) == wants_high;
                is_meant.then(|| this.take_of(number, bar)).flatten()
            })
        };
        if bar.is_wide { of(self, true).or_else(|| of(self, false)) } else { of(self, false) }
    }

    fn take_of(&mut self, number: usize, bar: &Bar) -> Option<Place> {
        let window = &self.all[number];
        if window.is_prefetchable && !bar.is_prefetchable {
            return None;
        }
        let bytes = bar.bytes.checked_next_multiple_of(PAGE)?;
        // An address of 0 is none.
        let next = (window.bus + self.given[number]).max(1);
        let start = next.checked_next_multiple_of(bytes)?;
        let end = start.checked_add(bytes)?;
        let limit = if bar.is_wide { u64::MAX } else { NARROW_END };
        if end > (window.bus + window.bytes).min(limit) {
            return None;
        }
        let cpu = window.cpu + (start - window.bus);
        if cpu == 0 {
            return None;
        }
        self.given[number] = end - window.bus;
        Some(Place { bus: start, cpu, bytes })
    }
}
