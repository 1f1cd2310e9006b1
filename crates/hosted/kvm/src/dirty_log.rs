//! The log of what a guest writes: a bitmap of each memslot, or a ring of each vCPU.
//!
//! A memslot with [`MemoryFlags::log_dirty`](crate::MemoryFlags) has a bitmap. [`Vm::dirty_log`] reads it, and takes the
//! bits out, unless the VMM does that itself ([`Vm::protect_manually`], [`Vm::clear_dirty_log`]). In a VM that has
//! [rings](Vm::log_in_rings), each vCPU has a [`DirtyRing`].

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use kvm_bindings::{
    KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE, KVM_CAP_DIRTY_LOG_RING, KVM_CAP_DIRTY_LOG_RING_ACQ_REL,
    KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
    KVM_DIRTY_LOG_INITIALLY_SET, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, KVM_DIRTY_LOG_PAGE_OFFSET,
    KVMIO, kvm_clear_dirty_log, kvm_clear_dirty_log__bindgen_ty_1 as ClearBitmap, kvm_dirty_gfn,
    kvm_dirty_log, kvm_dirty_log__bindgen_ty_1 as Bitmap, kvm_enable_cap,
};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Setter, Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{Error, Vcpu, Vm};

/// Pages that a word of a bitmap stands for.
const PAGES_A_WORD: u64 = 64;

/// Bytes of an entry of a ring.
const ENTRY: usize = size_of::<kvm_dirty_gfn>();

/// What a vCPU says of an entry that it has filled, and a VMM of one that it has collected: `KVM_DIRTY_GFN_F_DIRTY` and
/// `KVM_DIRTY_GFN_F_RESET`.
const DIRTY: u32 = 1 << 0;
const RESET: u32 = 1 << 1;

impl Vm {
    /// Leaves it to the VMM to take bits out of bitmaps: `KVM_ENABLE_CAP` of `KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2` (Linux
    /// v5.2). With `initially_set` (v5.7), every bit of a bitmap is set at first, and pages are write-protected when
    /// their bits are taken out, and not when the log is switched on. Before memslots have logs.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_ENABLE_CAP`: EINVAL where the kernel cannot.
    pub fn protect_manually(&self, initially_set: bool) -> Result<(), Error> {
        let initially = if initially_set { KVM_DIRTY_LOG_INITIALLY_SET } else { 0 };
        self.enable(
            KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
            u64::from(KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | initially),
        )
    }

    /// Has each vCPU log what it writes in a ring of `entries` entries, a power of two from 1024 on (65,536 at most):
    /// `KVM_ENABLE_CAP` of `KVM_CAP_DIRTY_LOG_RING_ACQ_REL`, or where there is none, of `KVM_CAP_DIRTY_LOG_RING`. Before
    /// the first vCPU and the first memslot.
    ///
    /// On x86-64, memslots have no bitmaps then. On arm64 they have, for what KVM writes when no vCPU runs: there,
    /// `KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP` is enabled too. Without a bitmap, KVM on arm64 does not take a memslot for one
    /// that is logged (`memslot_is_logging`): a write to a block of 2 MiB makes all of the block writable again, and the
    /// ring names one of its 512 pages.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_ENABLE_CAP`: EINVAL where the kernel cannot, or there is a vCPU, or on arm64 a memslot;
    /// E2BIG.
    pub fn log_in_rings(&self, entries: u32) -> Result<(), Error> {
        let bytes = u64::from(entries) * ENTRY as u64;
        self.enable(KVM_CAP_DIRTY_LOG_RING_ACQ_REL, bytes)
            .or_else(|_| self.enable(KVM_CAP_DIRTY_LOG_RING, bytes))?;
        if cfg!(target_arch = "aarch64") {
            self.enable(KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP, 0)?;
        }
        Ok(())
    }

    /// Has blocks split into pages where a memslot's log is switched on, `bytes` of memory at a time: `KVM_ENABLE_CAP` of
    /// `KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE` (Linux v6.5, arm64). Otherwise, a write to a block unmaps it, and maps its page.
    /// Before the first memslot.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_ENABLE_CAP`: EINVAL where the kernel cannot, there is a memslot, or `bytes` is no size of a
    /// block.
    pub fn split_eagerly(&self, bytes: u64) -> Result<(), Error> {
        self.enable(KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE, bytes)
    }

    fn enable(&self, cap: u32, argument: u64) -> Result<(), Error> {
        let mut enabled = kvm_enable_cap { cap, ..Default::default() };
        enabled.args[0] = argument;
        self.fd().enable_cap(&enabled).map_err(Error::ioctl("KVM_ENABLE_CAP"))
    }

    /// Reads the bitmap of memslot `slot` into `words`, a bit a page; takes the bits out and write-protects the pages,
    /// unless that is done [manually](Vm::protect_manually): `KVM_GET_DIRTY_LOG`.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_GET_DIRTY_LOG`: ENOENT if the slot has no bitmap; EINVAL if there is no such slot, or
    /// `words` are not as many as its bitmap has.
    pub fn dirty_log(&self, slot: u32, words: &mut [u64]) -> Result<(), Error> {
        const CALL: &str = "KVM_GET_DIRTY_LOG";
        const OPCODE: rustix::ioctl::Opcode = opcode::write::<kvm_dirty_log>(KVMIO as u8, 0x42);
        let size = |pages: u64| pages.div_ceil(PAGES_A_WORD);
        // The kernel writes as much as the slot's bitmap has.
        let pages = self.slot_pages(slot).ok_or(Errno::INVAL).map_err(Error::call(CALL))?;
        if size(pages) != words.len() as u64 {
            return Err(Error::call(CALL)(Errno::INVAL));
        }
        let bitmap = Bitmap { dirty_bitmap: words.as_mut_ptr().cast() };
        let request = kvm_dirty_log { slot, padding1: 0, __bindgen_anon_1: bitmap };
        // SAFETY: KVM_GET_DIRTY_LOG reads one `kvm_dirty_log` through its argument (uapi linux/kvm.h: _IOW(KVMIO, 0x42,
        // struct kvm_dirty_log)), and writes the slot's bitmap to where that says: as many words as `words` are.
        unsafe { ioctl(self.borrow_fd(), Setter::<OPCODE, _>::new(request)) }
            .map_err(Error::call(CALL))
    }

    /// Takes those bits out of the bitmap of memslot `slot`, from page `first` on, that are set in `words`, and
    /// write-protects their pages: `KVM_CLEAR_DIRTY_LOG`. `first` is a multiple of 64. `words` end with the slot.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_CLEAR_DIRTY_LOG`: EINVAL if there is no such slot, or the words are beyond its end;
    /// ENOENT if it has no bitmap.
    pub fn clear_dirty_log(&self, slot: u32, first: u64, words: &mut [u64]) -> Result<(), Error> {
        const CALL: &str = "KVM_CLEAR_DIRTY_LOG";
        const OPCODE: rustix::ioctl::Opcode =
            opcode::read_write::<kvm_clear_dirty_log>(KVMIO as u8, 0xc0);
        let pages = self.slot_pages(slot).ok_or(Errno::INVAL).map_err(Error::call(CALL))?;
        let left = pages.checked_sub(first).ok_or(Errno::INVAL).map_err(Error::call(CALL))?;
        let num_pages = left.min(PAGES_A_WORD * words.len() as u64);
        let num_pages = u32::try_from(num_pages).map_err(|_| Error::call(CALL)(Errno::INVAL))?;
        let bitmap = ClearBitmap { dirty_bitmap: words.as_mut_ptr().cast() };
        let mut request =
            kvm_clear_dirty_log { slot, num_pages, first_page: first, __bindgen_anon_1: bitmap };
        // SAFETY: KVM_CLEAR_DIRTY_LOG reads one `kvm_clear_dirty_log` through its argument (uapi linux/kvm.h:
        // _IOWR(KVMIO, 0xc0, struct kvm_clear_dirty_log)), and the bits of `num_pages` pages from where that says:
        // `words` have at least as many.
        unsafe { ioctl(self.borrow_fd(), Updater::<OPCODE, _>::new(&mut request)) }
            .map_err(Error::call(CALL))
    }

    /// Write-protects the pages of the entries that were [collected](DirtyRing::collect) from rings, and gives the entries
    /// back: `KVM_RESET_DIRTY_RINGS`.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_RESET_DIRTY_RINGS`: EINVAL if the VM has no rings.
    pub fn reset_dirty_rings(&self) -> Result<(), Error> {
        const OPCODE: rustix::ioctl::Opcode = opcode::none(KVMIO as u8, 0xc7);
        // SAFETY: KVM_RESET_DIRTY_RINGS has no argument (uapi linux/kvm.h: _IO(KVMIO, 0xc7)), and writes rings alone,
        // which are accessed as atomics here.
        unsafe { ioctl(self.borrow_fd(), NoArg::<OPCODE>::new()) }
            .map_err(Error::call("KVM_RESET_DIRTY_RINGS"))
    }
}

/// A vCPU's ring of what it has written. Unmapped when dropped; until then it keeps the vCPU, and so the VM.
#[derive(Debug)]
pub struct DirtyRing {
    entries: NonNull<kvm_dirty_gfn>,
    count: usize,
    next: usize,
}

// SAFETY: the mapping belongs to no thread; its entries are accessed as atomics, by whoever has the ring for itself.
unsafe impl Send for DirtyRing {}

impl DirtyRing {
    /// Maps the ring of a vCPU, which has `entries` entries.
    ///
    /// # Errors
    /// [`Error::Call`] with `mmap`: EINVAL if the VM has no rings, or of another size.
    pub fn map(vcpu: &Vcpu, entries: u32) -> Result<Self, Error> {
        let count = entries as usize;
        let (shared, offset) = (MapFlags::SHARED, u64::from(KVM_DIRTY_LOG_PAGE_OFFSET) * 4096);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the vCPU owns the fd, and the borrow ends before this returns.
        let fd = unsafe { BorrowedFd::borrow_raw(vcpu.fd().as_raw_fd()) };
        // SAFETY: a new mapping, wherever there is room.
        let mapped =
            unsafe { mmap(std::ptr::null_mut(), count * ENTRY, access, shared, fd, offset) }
                .map_err(Error::call("mmap"))?;
        let entries =
            NonNull::new(mapped.cast()).ok_or(Errno::INVAL).map_err(Error::call("mmap"))?;
        Ok(Self { entries, count, next: 0 })
    }

    /// Whether there is hardly room for another entry, so that its vCPU comes out ([`Exit::DirtyRingFull`](crate::Exit)),
    /// or will soon: all but an eighth of the entries are filled, and not collected.
    pub fn is_full(&self) -> bool {
        let ahead = (self.next + self.count - self.count / 8) % self.count;
        // SAFETY: an entry of the mapping, which lasts as long as `self`.
        let entry = unsafe { self.entries.add(ahead) };
        // SAFETY: as in `collect`.
        let flags = unsafe { AtomicU32::from_ptr(&raw mut (*entry.as_ptr()).flags) };
        flags.load(Ordering::Acquire) & DIRTY != 0
    }

    /// Tells `each` of the pages that were written since the last time: the number of the memslot, and the page's number
    /// in it. The vCPU may go on meanwhile. The pages are write-protected by [`Vm::reset_dirty_rings`].
    pub fn collect(&mut self, mut each: impl FnMut(u32, u64)) {
        for _ in 0..self.count {
            // SAFETY: an entry of the mapping, which lasts as long as `self`.
            let entry = unsafe { self.entries.add(self.next) };
            // SAFETY: the flags of that entry, aligned; the kernel accesses them as atomics, and so does all here.
            let flags = unsafe { AtomicU32::from_ptr(&raw mut (*entry.as_ptr()).flags) };
            // Acquire, pairing with the kernel's release, which comes after it has filled the entry.
            if flags.load(Ordering::Acquire) & DIRTY == 0 {
                return;
            }
            // SAFETY: the kernel does not write an entry that is dirty.
            let kvm_dirty_gfn { slot, offset, .. } = unsafe { entry.as_ptr().read_volatile() };
            each(slot & 0xffff, offset);
            // Release: it was read before the kernel has it back.
            flags.store(RESET, Ordering::Release);
            self.next = (self.next + 1) % self.count;
        }
    }
}

impl Drop for DirtyRing {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more. That it cannot be unmapped cannot be helped.
        let _ = unsafe { munmap(self.entries.as_ptr().cast(), self.count * ENTRY) };
    }
}
