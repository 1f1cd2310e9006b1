//! A device that a test plays: it sees what the driver has made available, and says what it likes.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mayfly_drivers::{
    BufferDirection, DeviceStatus, DeviceType, Hal, InterruptStatus, PhysAddr, Transport,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) const VERSION_1: u64 = 1 << 32;

/// Memory of the test's process, which is never freed, as that of a machine's own devices.
pub(crate) struct Host;

// SAFETY: memory from the allocator, which is zeroed, aligned, and given to one owner.
unsafe impl Hal for Host {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let layout = Layout::from_size_align(pages * 4096, 4096).unwrap();
        // SAFETY: it has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        (start.expose_provenance().get() as u64, start)
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(_paddr: PhysAddr, _size: usize) -> NonNull<u8> {
        unreachable!("there is no PCI")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().expose_provenance().get() as u64
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

#[derive(Clone, Copy, Default)]
struct Queue {
    size: u16,
    descriptors: u64,
    driver: u64,
    device: u64,
    seen: u16,
    used: u16,
}

/// What the device is, and what it was told.
pub(crate) struct State {
    pub(crate) offers: u64,
    pub(crate) taken: u64,
    pub(crate) status: DeviceStatus,
    /// Whether it takes the features that it has offered.
    pub(crate) agrees: bool,
    /// How often its status is read until it has ended a reset.
    pub(crate) resets_after: usize,
    pub(crate) legacy: bool,
    pub(crate) config: Vec<u8>,
    pub(crate) generations: u32,
    pub(crate) most: u32,
    pub(crate) notified: Vec<u16>,
    /// How often it was stopped after it had begun to work.
    pub(crate) stops: u32,
    queues: [Queue; 6],
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<State>>, DeviceType);

/// A part of a chain: its place, its length, and whether the device writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    address: u64,
    pub(crate) len: u32,
    pub(crate) is_written: bool,
}

impl Part {
    pub(crate) fn read(&self) -> Vec<u8> {
        let start = std::ptr::with_exposed_provenance::<u8>(self.address as usize);
        // SAFETY: the driver has given this memory to the device, which alone reaches it now.
        unsafe { std::slice::from_raw_parts(start, self.len as usize) }.to_vec()
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        assert!(self.is_written && bytes.len() <= self.len as usize);
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.address as usize);
        // SAFETY: as above.
        unsafe { start.copy_from(bytes.as_ptr(), bytes.len()) };
    }
}

fn load<T: Copy>(address: u64) -> T {
    // SAFETY: in a queue that the driver has set up.
    unsafe { std::ptr::with_exposed_provenance::<T>(address as usize).read_volatile() }
}

fn store<T>(address: u64, value: T) {
    // SAFETY: as above.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(address as usize).write_volatile(value) };
}

impl Fake {
    pub(crate) fn new(kind: DeviceType, offers: u64, config: &[u8]) -> Self {
        let state = State {
            offers,
            taken: 0,
            status: DeviceStatus::empty(),
            agrees: true,
            resets_after: 0,
            legacy: false,
            config: config.to_vec(),
            generations: 0,
            most: 256,
            notified: Vec::new(),
            stops: 0,
            queues: [Queue::default(); 6],
        };
        Self(Arc::new(Mutex::new(state)), kind)
    }

    fn queue(&self, queue: u16) -> Queue {
        self.0.lock().unwrap().queues[usize::from(queue)]
    }

    /// The next chain that the driver has made available: its number, and its parts.
    pub(crate) fn next(&self, queue: u16) -> Option<(u16, Vec<Part>)> {
        let Queue { size, descriptors, driver, seen, .. } = self.queue(queue);
        if load::<u16>(driver + 2) == seen {
            return None;
        }
        let head: u16 = load(driver + 4 + 2 * u64::from(seen % size));
        self.0.lock().unwrap().queues[usize::from(queue)].seen = seen.wrapping_add(1);
        let (mut parts, mut index) = (Vec::new(), head);
        loop {
            let at = descriptors + 16 * u64::from(index);
            let flags: u16 = load(at + 12);
            parts.push(Part { address: load(at), len: load(at + 8), is_written: flags & 2 != 0 });
            assert!(parts.len() <= 3, "a chain of the driver ends");
            if flags & 1 == 0 {
                return Some((head, parts));
            }
            index = load(at + 14);
        }
    }

    /// Says that a chain was used. It may say anything.
    pub(crate) fn used(&self, queue: u16, number: u32, written: u32) {
        let Queue { size, device, used, .. } = self.queue(queue);
        let at = device + 4 + 8 * u64::from(used % size);
        store(at, number);
        store(at + 4, written);
        self.jump(queue, 1);
    }

    /// Says that so many more were used, whatever they are.
    pub(crate) fn jump(&self, queue: u16, count: u16) {
        let mut state = self.0.lock().unwrap();
        let queue = &mut state.queues[usize::from(queue)];
        queue.used = queue.used.wrapping_add(count);
        store(queue.device + 2, queue.used);
    }

    /// Whether the driver wants to be told of what is used.
    pub(crate) fn is_listened_to(&self, queue: u16) -> bool {
        load::<u16>(self.queue(queue).driver) & 1 == 0
    }
}

impl Transport for Fake {
    fn device_type(&self) -> DeviceType {
        self.1
    }

    fn read_device_features(&mut self) -> u64 {
        self.0.lock().unwrap().offers
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.0.lock().unwrap().taken = driver_features;
    }

    fn max_queue_size(&mut self, _queue: u16) -> u32 {
        self.0.lock().unwrap().most
    }

    fn notify(&mut self, queue: u16) {
        self.0.lock().unwrap().notified.push(queue);
    }

    fn get_status(&self) -> DeviceStatus {
        let mut state = self.0.lock().unwrap();
        if state.status.is_empty() && state.resets_after > 0 {
            state.resets_after -= 1;
            return DeviceStatus::all();
        }
        if state.agrees { state.status } else { state.status - DeviceStatus::FEATURES_OK }
    }

    fn set_status(&mut self, status: DeviceStatus) {
        let mut state = self.0.lock().unwrap();
        if status.is_empty() && state.status.contains(DeviceStatus::DRIVER_OK) {
            state.stops += 1;
        }
        state.status = status;
    }

    fn set_guest_page_size(&mut self, _guest_page_size: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        self.0.lock().unwrap().legacy
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver_area: PhysAddr,
        device_area: PhysAddr,
    ) {
        self.0.lock().unwrap().queues[usize::from(queue)] = Queue {
            size: size as u16,
            descriptors,
            driver: driver_area,
            device: device_area,
            ..Queue::default()
        };
    }

    fn queue_unset(&mut self, _queue: u16) {}

    fn queue_used(&mut self, _queue: u16) -> bool {
        false
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }

    fn read_config_generation(&self) -> u32 {
        let mut state = self.0.lock().unwrap();
        let generation = state.generations;
        state.generations = generation.saturating_sub(1);
        generation
    }

    fn read_config_space<T: FromBytes + IntoBytes>(
        &self,
        offset: usize,
    ) -> Result<T, virtio_drivers::Error> {
        let state = self.0.lock().unwrap();
        let bytes = state.config.get(offset..offset + size_of::<T>());
        let bytes = bytes.ok_or(virtio_drivers::Error::ConfigSpaceTooSmall)?;
        Ok(T::read_from_bytes(bytes).unwrap())
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        _offset: usize,
        _value: T,
    ) -> Result<(), virtio_drivers::Error> {
        unreachable!("nothing is configured")
    }
}
