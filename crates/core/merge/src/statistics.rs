//! What the merger tells of itself.

/// Numbers that Linux has in files of these names in `/sys/kernel/mm/ksm` (`Documentation/admin-guide/mm/ksm.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that pages share.
    pub pages_shared: u64,
    /// Pages that share them, beyond one of each: so many frames are saved.
    pub pages_sharing: u64,
    /// Pages that stayed the same and have no equal, at the last look at them.
    pub pages_unshared: u64,
    /// Pages that had changed since the look before, at the last look at them.
    pub pages_volatile: u64,
    /// Looks at pages.
    pub pages_scanned: u64,
    /// Pages that were not looked at in a pass, because they had no equal in many looks
    /// ([`most_passes`](crate::Limits::most_passes)).
    pub pages_skipped: u64,
    /// Pages that were merged, each time that they were; the first of those that share a frame does not count. (Linux
    /// keeps no such number.)
    pub pages_merged: u64,
    /// How often all pages have been gone through.
    pub full_scans: u64,
    /// Pages that are merged with the frame of zeroes, and are in none of the numbers above that say *share*.
    pub ksm_zero_pages: u64,
    /// Contents that are in more than one frame because one may have only so many pages.
    pub stable_node_chains: u64,
    /// Those frames.
    pub stable_node_dups: u64,
}
