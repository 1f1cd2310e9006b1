//! Memory for page tables.

use core::ptr::NonNull;

use crate::address::Pfn;
use crate::memory::OutOfMemory;
use crate::sync::AtomicU64;

/// The words of a frame: the entries of a page table. A model checker's are few, since it watches each of them.
pub const WORDS: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 4 } else { 512 };

/// Gives out frames for page tables, and says where the hypervisor finds them.
pub trait Frames: Send + Sync {
    /// `1 << order` frames of zeroes, one after the other, the first at a multiple of their number. Frame 0 is never
    /// among them: a list of frames may end with it.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], when so many are not left.
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory>;

    /// Takes back what [`Frames::allocate`] gave. Nobody uses it any more, no CPU's TLB or walk cache included.
    fn free(&self, first: Pfn, order: u32);

    /// Where the hypervisor's own mapping of frame 0 is, or would be: word `w` of frame `n` is [`WORDS`] `n` + `w`
    /// words from here, if `n` is one of the frames that [`Frames::allocate`] gives. Never changes.
    fn linear_map(&self) -> NonNull<AtomicU64>;
}
