//! The memory of one VM: an address space of the hypervisor's own, whose pages get frames when they are first touched.
//! A disk is such memory, too.
//!
//! A page's address is its distance from the beginning of the VM's memory. For each 2 MiB of memory there is a word.
//! The word is empty, or names a block of 2 MiB, or names a table of pages, which is made when no block is free. Frames
//! stay until the memory is dropped, or [goes back](going_back) to what it began as, or its guest [gives](giving_back) them
//! back. They are an image's from the moment in which a running VM is [forked](leaving). It is dropped when no vCPU can reach it and no TLB holds a translation to it. Memory may begin as an [`image`] that it shares with others.
//!
//! What a word says, and the frame of a page's entry in a table, is written under the lock, after the frames are zeroed. The
//! write is a release. It pairs with the acquire of the caller that reads the word. The lowest bits of a word
//! and the highest of an entry are for the lock's holder alone: they chain the pages of a table.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ops::Deref;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use mayfly_hypervisor::given::{self, Blocks};
use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_vm::platform::cache::Cache;
use mayfly_vm::platform::frames::Frames;
use mayfly_vm::platform::lock::{Lock, LockGuard};
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::stage2::{Level, Permissions};
use mayfly_vm::{HostFault, HostMemory, Resolved};

use super::arch::copy;
use super::platform::World;
use crate::bare::processor::frames::free;
use crate::bare::processor::in_use;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads;

mod clean;
mod giving_back;
mod going_back;
mod image;
mod leaving;
mod merging;
mod packing;
pub(crate) mod shelf;

use going_back::Freed;
pub(crate) use image::Hears;
use image::ImagePage;
pub(crate) use image::Shares;
pub(crate) use merging::words;
use merging::{Met, SHARED};
pub(crate) use packing::Packing;

const BLOCK_SHIFT: u32 = 21;
const BLOCK_BYTES: u64 = 1 << BLOCK_SHIFT;
const BLOCK_ORDER: u32 = BLOCK_SHIFT - PAGE_SHIFT;
const PAGES: u64 = 1 << BLOCK_ORDER;
const _: () = assert!(PAGES as usize == given::PAGES);

/// How many words are made between two looks for interrupts.
const WORDS_AT_ONCE: usize = 1024;
/// How many frames are freed between two.
const FRAMES_AT_ONCE: usize = 16;

/// How often a caller that waits for nothing looks for the lock of frames that are given: for much longer than it takes to copy a
/// page, or to have one [share](merging) a frame, for which other processors are waited for; but not as often when others are to have
/// the processor, among which may be the holder. A device that does not get it asks its guest for a reset.
const PATIENCE: u32 = 1 << 14;
const LEAST_PATIENCE: u32 = 256;

/// What a word says, in its lowest bits; from bit 12 on is the first frame's address.
const KIND: u64 = 3;
const BLOCK: u64 = 1;
const TABLE: u64 = 2;

/// The number of the frame that an entry of a table says.
const FRAME: u64 = (1 << 47) - 1;

/// The memory of one VM.
pub(crate) struct GuestMemory {
    /// Another one from the moment in which what it has becomes an image ([`leaving`]).
    layer: UnsafeCell<Layer>,
    /// Held while frames are given.
    giving: Lock<()>,
    frames: AtomicU64,
    /// It gets no blocks.
    by_frames: bool,
    /// Its VM, which hears where a page gets a frame in the place of the image's.
    hears: SpinLock<Option<Arc<dyn Hears>>>,
    /// Faults that merging is to blame for.
    met: Met,
}

/// What a memory has of its own, and what is behind that.
pub(crate) struct Layer {
    world: Arc<World>,
    words: Vec<AtomicU64>,
    /// The words that name a block, or a page.
    given: Blocks,
    /// What the pages are that have no frame yet.
    image: Option<Arc<GuestMemory>>,
    /// How many pages [share](merging) a frame.
    merged: AtomicU64,
}

// SAFETY: all of it may be used by several threads, but for the moment in which the layer becomes another one: the caller
// that does this promises that no other thread uses it meanwhile.
unsafe impl Sync for GuestMemory {}

impl Deref for GuestMemory {
    type Target = Layer;

    fn deref(&self) -> &Layer {
        // SAFETY: whoever changes it promises that nobody else uses it meanwhile.
        unsafe { &*self.layer.get() }
    }
}

/// Looks for interrupts, if there is more to do.
fn look_if(is_more: bool) {
    if is_more {
        threads::interrupts::look();
    }
}

impl GuestMemory {
    /// Memory of `bytes` bytes, rounded up to 2 MiB. None of it has a frame yet.
    pub(crate) fn try_new(world: Arc<World>, bytes: u64) -> Result<Self, OutOfMemory> {
        let mut words = Vec::new();
        let count = bytes.div_ceil(BLOCK_BYTES) as usize;
        words.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        while words.len() < count {
            words.resize_with(count.min(words.len() + WORDS_AT_ONCE), || AtomicU64::new(0));
            threads::preemption_point();
        }
        let given = Blocks::try_new(count)?;
        let layer =
            UnsafeCell::new(Layer { world, words, given, image: None, merged: AtomicU64::new(0) });
        let (giving, frames, hears) = (Lock::new(()), AtomicU64::new(0), SpinLock::new(None));
        Ok(Self { layer, giving, frames, by_frames: false, hears, met: Met::default() })
    }

    /// The same, which gets a frame for each page alone: what is touched is then all that is given.
    pub(crate) fn by_frames(mut self) -> Self {
        self.by_frames = true;
        self
    }

    /// What it takes its frames from.
    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Bytes of heap that are there as long as it, those of its images included.
    pub(crate) fn heap_bytes(&self) -> usize {
        let images = self.image.as_ref().map_or(0, |image| image.heap_bytes());
        size_of_val(&*self.words) + Blocks::heap_bytes(self.words.len()) + images
    }

    /// Bytes of heap of a memory of its size that has no image.
    pub(crate) fn layer_bytes(&self) -> usize {
        size_of_val(&*self.words)
            + Blocks::heap_bytes(self.words.len())
            + size_of::<(Self, [usize; 2])>()
    }

    /// How many bytes it is of.
    pub(crate) fn bytes(&self) -> u64 {
        self.words.len() as u64 * BLOCK_BYTES
    }

    /// Frames that it has, without the image's.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether all of `bytes` from `address` on are in it.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        address.checked_add(bytes).is_some_and(|end| end <= self.bytes())
    }

    /// Writes bytes to it, which the guest may be using.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), HostFault> {
        self.write_by(address, bytes, Self::page, |_| threads::preemption_point())
    }

    /// The same for a guest that may read it past the caches: what it reads from now on is what was written. All of it is in
    /// one page.
    pub(crate) fn write_past_caches(&self, address: u64, bytes: &[u8]) -> Result<(), HostFault> {
        self.write(address, bytes)?;
        self.with_page(address, Self::page, |at| {
            self.world.clean(Pfn::new(at / PAGE_SIZE), 1);
        })
    }

    /// The same for a caller that has a lock: it waits for nothing, and keeps its processor. It looks for interrupts between two
    /// pages; the caller sees to that between two calls.
    pub(crate) fn write_now(&self, address: u64, bytes: &[u8]) -> Result<(), HostFault> {
        self.write_by(address, bytes, Self::page_now, look_if)
    }

    /// Writes a little-endian number of 32 bits by one access, for a guest that may read it past the caches.
    pub(crate) fn put_past_caches(&self, address: u64, value: u32) -> Result<(), HostFault> {
        if !address.is_multiple_of(4) {
            return Err(HostFault::NotMapped);
        }
        self.with_page(address, Self::page, |at| {
            // SAFETY: the frame is this memory's meanwhile; the address is a multiple of four.
            let number = unsafe { &*with_exposed_provenance_mut::<AtomicU32>(at as usize) };
            number.store(value.to_le(), Ordering::Release);
            World::clean_bytes(at, 4);
        })
    }

    fn write_by(
        &self,
        address: u64,
        bytes: &[u8],
        page: impl Fn(&Self, u64) -> Result<Pfn, HostFault>,
        pause: fn(bool),
    ) -> Result<(), HostFault> {
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let into = at % PAGE_SIZE;
            let (now, later) = rest.split_at(rest.len().min((PAGE_SIZE - into) as usize));
            // SAFETY: the frame is this memory's meanwhile.
            self.with_page(at, &page, |to| unsafe { copy::write(to, now) })?;
            at += now.len() as u64;
            rest = later;
            pause(!rest.is_empty());
        }
        Ok(())
    }

    /// Reads bytes from it. A page that was never touched is zeroes, and stays without a frame.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), HostFault> {
        self.read_by(address, bytes, |_| threads::preemption_point())
    }

    /// The same for a caller that has a lock: it keeps its processor, and looks for interrupts as with
    /// [`GuestMemory::write_now`].
    pub(crate) fn read_now(&self, address: u64, bytes: &mut [u8]) -> Result<(), HostFault> {
        self.read_by(address, bytes, look_if)
    }

    fn read_by(&self, address: u64, bytes: &mut [u8], pause: fn(bool)) -> Result<(), HostFault> {
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let into = at % PAGE_SIZE;
            let length = rest.len().min((PAGE_SIZE - into) as usize);
            let (now, later) = rest.split_at_mut(length);
            let using = in_use::begin();
            match self.page_if_given(at)? {
                // SAFETY: the frame is this memory's meanwhile, or an image's, which keeps it.
                Some(page) => unsafe { copy::read(page.get() * PAGE_SIZE + into, now) },
                None => now.fill(0),
            }
            drop(using);
            at += length as u64;
            rest = later;
            pause(!rest.is_empty());
        }
        Ok(())
    }

    /// Copies `bytes` bytes to `to` on, from `from` on in another memory, for a caller that has a lock: it waits for nothing,
    /// and keeps its processor. All are in these memories.
    pub(crate) fn copy_now(
        &self,
        mut to: u64,
        (other, mut from): (&Self, u64),
        bytes: u64,
    ) -> Result<(), HostFault> {
        static NOTHING: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
        let end = to + bytes;
        while to < end {
            let in_page = PAGE_SIZE - (to % PAGE_SIZE).max(from % PAGE_SIZE);
            let now = in_page.min(end - to);
            self.with_page(to, Self::page_now, |target| {
                // A page that was never touched is zeroes.
                let nothing = || NOTHING.as_ptr().expose_provenance() as u64;
                let source = other
                    .page_if_given(from)?
                    .map_or_else(nothing, |page| page.get() * PAGE_SIZE + from % PAGE_SIZE);
                // SAFETY: the frames are the memories' meanwhile, or an image's, which keeps it.
                unsafe { copy::bytes(source, target, now as usize) };
                Ok(())
            })??;
            (to, from) = (to + now, from + now);
            look_if(to < end);
        }
        Ok(())
    }

    /// Has `then` use the number at an even address, which the guest and a device share to announce what they have written
    /// elsewhere. Gives it a frame.
    pub(crate) fn with_number<T>(
        &self,
        address: u64,
        then: impl FnOnce(&AtomicU16) -> T,
    ) -> Result<T, HostFault> {
        self.with_number_by(address, Self::page, then)
    }

    /// The same for a caller that has a lock: it waits for nothing.
    pub(crate) fn with_number_now<T>(
        &self,
        address: u64,
        then: impl FnOnce(&AtomicU16) -> T,
    ) -> Result<T, HostFault> {
        self.with_number_by(address, Self::page_now, then)
    }

    fn with_number_by<T>(
        &self,
        address: u64,
        page: impl Fn(&Self, u64) -> Result<Pfn, HostFault>,
        then: impl FnOnce(&AtomicU16) -> T,
    ) -> Result<T, HostFault> {
        if !address.is_multiple_of(2) {
            return Err(HostFault::NotMapped);
        }
        self.with_page(address, page, |at| {
            // SAFETY: the frame is this memory's meanwhile; the address is even.
            then(unsafe { &*with_exposed_provenance_mut::<AtomicU16>(at as usize) })
        })
    }

    /// Has `then` use what is at `address`, in a frame of this memory's own that stays its own meanwhile, though its guest may
    /// give the page [back](GuestMemory::give_back); `give` gives a page a frame. `then` waits for nothing, and keeps its
    /// processor.
    fn with_page<T>(
        &self,
        address: u64,
        give: impl Fn(&Self, u64) -> Result<Pfn, HostFault>,
        then: impl FnOnce(u64) -> T,
    ) -> Result<T, HostFault> {
        let word = self.word_of(address)?;
        match Self::with_frame(word, address, then) {
            Ok(done) => Ok(done),
            Err(then) => self.with_page_given(word, address, give, then),
        }
    }

    /// The same for a page without a frame. Out of line, so that the usual way saves no registers for it.
    #[cold]
    #[inline(never)]
    fn with_page_given<T>(
        &self,
        word: &AtomicU64,
        address: u64,
        give: impl Fn(&Self, u64) -> Result<Pfn, HostFault>,
        mut then: impl FnOnce(u64) -> T,
    ) -> Result<T, HostFault> {
        loop {
            give(self, address)?;
            match Self::with_frame(word, address, then) {
                Ok(done) => return Ok(done),
                Err(again) => then = again,
            }
        }
    }

    /// The word of an address.
    #[inline]
    pub(super) fn word_of(&self, address: u64) -> Result<&AtomicU64, HostFault> {
        self.words.get((address >> BLOCK_SHIFT) as usize).ok_or(HostFault::NotMapped)
    }

    /// Has `then` use what is at `address`, if its page has a frame; returns `then` if not.
    #[inline]
    pub(super) fn with_frame<T, F: FnOnce(u64) -> T>(
        word: &AtomicU64,
        address: u64,
        then: F,
    ) -> Result<T, F> {
        let _using = in_use::begin();
        match Self::place(word, address) {
            Some(at) => Ok(then(at)),
            None => Err(then),
        }
    }

    /// Where what is at `address` is, if its page has a frame. The caller has [begun](in_use::begin) before, and uses it until
    /// it ends.
    #[inline]
    pub(super) fn place(word: &AtomicU64, address: u64) -> Option<u64> {
        let found = Self::look(word, (address >> PAGE_SHIFT) % PAGES)?;
        Some(Self::page_in(found, address).get() * PAGE_SIZE + address % PAGE_SIZE)
    }

    fn page_if_given(&self, address: u64) -> Result<Option<Pfn>, HostFault> {
        let word = self.word_of(address)?;
        // One look: a page that just comes to share a frame, or moves, or parts, has the same bytes in each of the two.
        match Self::look_to_read(word, (address >> PAGE_SHIFT) % PAGES) {
            Some(found) => Ok(Some(Self::page_in(found, address))),
            None => Ok(self.page_of_images(address)?.map(|found| found.page)),
        }
    }

    fn page_in((first, level): (Pfn, Level), address: u64) -> Pfn {
        let into = if level == Level::MIB2 { (address % BLOCK_BYTES) >> PAGE_SHIFT } else { 0 };
        Pfn::new(first.get() + into)
    }

    /// The frame of a page; given if there is none. Where memory has ended, waits until another VM has ended for it, or
    /// this one ends.
    fn page(&self, address: u64) -> Result<Pfn, HostFault> {
        loop {
            match self.find(address) {
                Err(HostFault::OutOfMemory) if self.world.wait_for_frame() => {}
                found => return Ok(Self::page_in(found?.found, address)),
            }
        }
    }

    /// The frame of a page; given if there is none and one is to be had at once: a single frame, which is zeroed or copied
    /// soon, and unless other callers are giving frames for long.
    fn page_now(&self, address: u64) -> Result<Pfn, HostFault> {
        let word = self.word_of(address)?;
        if let Some(found) = Self::look(word, (address >> PAGE_SHIFT) % PAGES) {
            return Ok(Self::page_in(found, address));
        }
        let giving = self.giving_soon().ok_or(HostFault::OutOfMemory)?;
        let found = self.give(address, true);
        drop(giving);
        Ok(Self::page_in(found?.found, address))
    }

    /// The lock under which frames are given, if it is free [soon](PATIENCE).
    fn giving_soon(&self) -> Option<LockGuard<'_, ()>> {
        for looks in 0..PATIENCE {
            if let Some(giving) = self.giving.try_lock(&*self.world) {
                return Some(giving);
            }
            threads::interrupts::look();
            if looks >= LEAST_PATIENCE && threads::is_over_time() {
                break;
            }
        }
        None
    }

    /// Gives a frame of its own to each page of `bytes` from `address` on. Waits for frames as a write does.
    pub(crate) fn own(&self, address: u64, bytes: u64) -> Result<(), HostFault> {
        let first = address & !(PAGE_SIZE - 1);
        for page in (first..address + bytes).step_by(PAGE_SIZE as usize) {
            self.page(page)?;
            threads::preemption_point();
        }
        Ok(())
    }

    /// The first frame of the block, or the frame of the page, that `address` lies in; given if there is none.
    fn find(&self, address: u64) -> Result<Given, HostFault> {
        let word = self.word_of(address)?;
        let page = (address >> PAGE_SHIFT) % PAGES;
        if let Some(found) = Self::look(word, page) {
            return Ok(found.into());
        }
        let _giving = self.giving.lock(&*self.world);
        self.give(address, self.by_frames)
    }

    /// As [`GuestMemory::find`], under the lock; no block is given if it is to be `by_frames`.
    fn give(&self, address: u64, by_frames: bool) -> Result<Given, HostFault> {
        let word = self.word_of(address)?;
        let page = (address >> PAGE_SHIFT) % PAGES;
        if let Some(found) = Self::look(word, page) {
            return Ok(found.into());
        }
        if let Some(behind) = self.image_page(address)? {
            let found = self.copy_page(address, behind.page)?;
            return Ok(Given { found, is_copied: true });
        }
        if word.load(Ordering::Relaxed) == 0 && !by_frames && !self.image_has(address) {
            let block = self.world.frames(BLOCK_ORDER);
            if let Some(block) = block {
                self.frames.fetch_add(PAGES, Ordering::Relaxed);
                word.store(block.get() << PAGE_SHIFT | BLOCK, Ordering::Release);
                self.given.insert((address >> BLOCK_SHIFT) as usize);
                return Ok((block, Level::MIB2).into());
            }
        }
        let table = self.table(address)?;
        let frame = self.world.frames(0).ok_or(HostFault::OutOfMemory)?;
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.put(address, table, frame);
        Ok((frame, Level::PAGE).into())
    }

    /// The frame of its own that a page has, or the block.
    fn look(word: &AtomicU64, page: u64) -> Option<(Pfn, Level)> {
        let value = word.load(Ordering::Acquire);
        match value & KIND {
            BLOCK => Some((Pfn::new(value >> PAGE_SHIFT), Level::MIB2)),
            TABLE => match entry(value, page).load(Ordering::Acquire) & (FRAME | SHARED) {
                0 | SHARED.. => None,
                frame => Some((Pfn::new(frame), Level::PAGE)),
            },
            _ => None,
        }
    }

    /// The same, of what is only read: also the frame that a page shares.
    fn look_to_read(word: &AtomicU64, page: u64) -> Option<(Pfn, Level)> {
        let value = word.load(Ordering::Acquire);
        match value & KIND {
            TABLE => match entry(value, page).load(Ordering::Acquire) & FRAME {
                0 => None,
                frame => Some((Pfn::new(frame), Level::PAGE)),
            },
            _ => Self::look(word, page),
        }
    }
}

/// The frame of a page, or the first one of its block.
struct Given {
    found: (Pfn, Level),
    /// The page was the image's until now: its VM has heard of that.
    is_copied: bool,
}

impl From<(Pfn, Level)> for Given {
    fn from(found: (Pfn, Level)) -> Self {
        Self { found, is_copied: false }
    }
}

/// The entry of a page in the table that a word names.
fn entry<'a>(word: u64, page: u64) -> &'a AtomicU64 {
    let table = with_exposed_provenance_mut::<AtomicU64>((word & !(PAGE_SIZE - 1)) as usize);
    // SAFETY: the table is the memory's, which outlives the caller; it holds zeroes and what was stored here.
    unsafe { &*table.add(page as usize) }
}

// SAFETY: frames that are this memory's alone, by blocks as they were given, and stay so until it goes: which is when
// the VM's tables have been reclaimed, so that neither a vCPU nor a TLB reaches them; or until the VM has heard that they go
// (`giving_back`, `going_back`). Those of the image are to be read
// only, and stay as long as this memory has the image.
unsafe impl HostMemory<Hva> for GuestMemory {
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        let address = backing.get();
        if !wanted.contains(Permissions::WRITE)
            && let Some(ImagePage { page, level, is_clean: clean }) =
                self.image_page_alone(address)?
        {
            return Ok(Resolved { clean, ..Resolved::memory(page, level, false) });
        }
        // Waits for no memory: the core's caller does, when it is out of the core.
        let Given { found, is_copied: changed } = self.find(address)?;
        let page = Self::page_in(found, address);
        Ok(Resolved { changed, ..Resolved::memory(page, found.1, true) })
    }

    fn cleaned(&self, backing: Hva, first: Pfn, level: Level) {
        if self.image.is_some() {
            self.note_clean(backing.get(), first, level);
        }
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.world.linear_map()
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        let mut freed = Freed::new(&self.frames, || ());
        for number in 0..self.words.len() {
            if number.is_multiple_of(FRAMES_AT_ONCE) {
                threads::preemption_point();
            }
            // Most are so in a fork.
            if self.words[number].load(Ordering::Relaxed) == 0 {
                continue;
            }
            // SAFETY: nothing uses them: see above.
            unsafe { self.empty(number, &mut freed) };
            let value = self.words[number].load(Ordering::Relaxed);
            if value & KIND == TABLE {
                // SAFETY: it was given for that order, and is empty.
                unsafe { free(Pfn::new(value >> PAGE_SHIFT), 0) };
            }
        }
    }
}
