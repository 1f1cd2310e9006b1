//! Memory that the machine's own devices reach: frames of the hypervisor. Memory is mapped one to one, and the device tree
//! says that the devices are coherent with the processors' caches.

use core::ptr::{NonNull, with_exposed_provenance_mut};

use mayfly_drivers::{BufferDirection, Hal, PhysAddr};
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use crate::bare::processor::frames;
use crate::bare::threads;

pub(crate) struct Dma;

fn order(pages: usize) -> u32 {
    pages.next_power_of_two().trailing_zeros()
}

// SAFETY: frames are given to one owner at a time, zeroed, and mapped where their number says.
unsafe impl Hal for Dma {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first =
            threads::frames::allocate(order(pages)).map_or(0, |first| first.get() * PAGE_SIZE);
        let start = NonNull::new(with_exposed_provenance_mut(first as usize));
        (first, start.unwrap_or(NonNull::dangling()))
    }

    unsafe fn dma_dealloc(paddr: PhysAddr, _vaddr: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { frames::free(Pfn::new(paddr / PAGE_SIZE), order(pages)) };
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: PhysAddr, _size: usize) -> NonNull<u8> {
        // Of registers, which are mapped one to one, too.
        NonNull::new(with_exposed_provenance_mut(paddr as usize)).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().expose_provenance().get() as u64
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}
