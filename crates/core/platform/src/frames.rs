//! Memory for page tables.

use crate::address::Pfn;
use crate::memory::OutOfMemory;
use crate::sync::AtomicU64;

/// The words of a frame: the entries of a page table. A model checker's are few, since it watches each of them.
pub const WORDS: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 4 } else { 512 };

/// Gives out frames for page tables, and says where the hypervisor finds them.
///
/// # Safety
///
/// The core reads and writes what is given here, and has CPUs walk it:
///
/// - What [`allocate`](Frames::allocate) gives is memory that no other party has, from then on until it is given to
///   [`free`](Frames::free): neither another caller, nor the platform itself, which may read it, through atomics. It is
///   zero, and lies as `allocate` says.
/// - For as long, and from any thread, each word of it is an [`AtomicU64`] where
///   [`linear_map`](Frames::linear_map) says, which that pointer may be used for when it is moved there
///   (`wrapping_add`).
///
/// An implementation without `unsafe` could name any memory:
///
/// ```compile_fail,E0200
/// use mayfly_platform::address::Pfn;
/// use mayfly_platform::frames::Frames;
/// use mayfly_platform::memory::OutOfMemory;
/// use mayfly_platform::sync::AtomicU64;
///
/// struct Anywhere;
///
/// impl Frames for Anywhere {
///     fn allocate(&self, _order: u32) -> Result<Pfn, OutOfMemory> {
///         Ok(Pfn::new(1))
///     }
///
///     unsafe fn free(&self, _first: Pfn, _order: u32) {}
///
///     fn linear_map(&self) -> *const AtomicU64 {
///         core::ptr::null()
///     }
/// }
/// ```
pub unsafe trait Frames: Send + Sync {
    /// `1 << order` frames of zeroes, one after the other, the first at a multiple of their number. Frame 0 is never
    /// among them: a list of frames may end with it.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], when so many are not left.
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory>;

    /// Takes back what [`Frames::allocate`] gave.
    ///
    /// # Safety
    ///
    /// [`Frames::allocate`] of this platform gave `first` for this `order`, and it has not been taken back since.
    /// No party uses it any more, no CPU's TLB or walk cache included.
    unsafe fn free(&self, first: Pfn, order: u32);

    /// Where the hypervisor's own mapping of frame 0 is, or would be: word `w` of frame `n` is [`WORDS`] `n` + `w`
    /// words from here, if `n` is one of the frames that [`Frames::allocate`] gives. Null where physical addresses are
    /// mapped to themselves ([`with_exposed_provenance`](core::ptr::with_exposed_provenance) of 0), and any other
    /// address, also one where nothing is. Never changes.
    fn linear_map(&self) -> *const AtomicU64;
}
