//! What can be set.

use mayfly_merge::Limits;

/// What the merger does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// 0: nothing; what is merged stays so.
    #[default]
    Stop,
    /// 1: it merges.
    Merge,
    /// 2: nothing, and nothing is merged any more.
    Unmerge,
}

/// Settings that Linux has in files of these names in `/sys/kernel/mm/ksm`, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// What a [`MergerThread`](super::MergerThread) does.
    pub run: Run,
    /// Pages in a batch.
    pub pages_to_scan: u64,
    /// Pause between two batches, in milliseconds.
    pub sleep_millisecs: u64,
    /// Whether pages of zeroes share one frame of their own kind, however many they are.
    pub use_zero_pages: bool,
    /// Pages that may share a frame; the next one of equal contents begins another. At least 2.
    pub max_page_sharing: u64,
    /// Pages that are merged together at most, if they are one after the other. (Linux has no such setting: each by
    /// itself.)
    pub pages_to_merge: u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            run: Run::Stop,
            pages_to_scan: 100,
            sleep_millisecs: 20,
            use_zero_pages: false,
            max_page_sharing: 256,
            pages_to_merge: 1,
        }
    }
}

impl Tunables {
    pub(super) fn limits(&self) -> Limits {
        let Self { max_page_sharing, pages_to_merge, .. } = *self;
        let (most_passes, pages_a_look) = (1, 1);
        Limits { max_page_sharing, pages_to_merge, pages_a_find: 1, most_passes, pages_a_look }
    }
}
