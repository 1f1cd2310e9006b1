//! The registers of a virtio device on a PCI bus.
//!
//! They are those of [`PciTransport`], with two exceptions. It reads at each notification where a queue is notified, and
//! panics where the device answers otherwise than before: a device that was lost answers with ones. Here, this is
//! [asked once](PciRegisters::max_queue_size). And the end of a [`PciTransport`] waits until the device is reset, without a
//! bound: here nothing waits.

use core::mem::ManuallyDrop;
use core::ptr::{NonNull, with_exposed_provenance_mut};

use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::pci::bus::{DeviceFunction, PciRoot};
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::bars::{MOST_BARS, Place};
use super::capabilities::{Structure, Structures};
use super::copy::Copy;
use super::{Function, NotUsed};

/// The most queues of a device that are used.
const MOST_QUEUES: usize = 8;

/// Offsets in the common structure (virtio 1.2, 4.1.4.3).
const QUEUE_SELECT: u64 = 22;
const QUEUE_NOTIFY_OFF: u64 = 30;

/// A device that has addresses, and whose registers are still to be mapped.
#[derive(Debug)]
pub struct Prepared {
    function: DeviceFunction,
    copy: Copy,
    /// Where each structure is, and how long it is: the common one, that for notifications, and the interrupt's.
    common: u64,
    notify: (u64, u32),
    multiplier: u32,
    interrupt: u64,
    /// The BARs that have structures.
    bars: [Option<Place>; MOST_BARS],
}

impl Prepared {
    pub(super) fn new(
        function: &Function,
        structures: &Structures,
        places: &[Option<Place>; MOST_BARS],
    ) -> Result<Self, NotUsed> {
        let copy = Copy::new(function.info.device_id, structures, places)?;
        let Structures { common, notify, interrupt, device, multiplier, .. } = structures;
        let mut bars = [None; MOST_BARS];
        for structure in [Some(common), Some(notify), Some(interrupt), device.as_ref()] {
            let Some(&Structure { bar, .. }) = structure else { continue };
            bars[bar] = places[bar];
        }
        let at = |structure: &Structure| {
            let place = bars[structure.bar].ok_or(NotUsed::Structures)?;
            Ok::<_, NotUsed>(place.cpu + u64::from(structure.offset))
        };
        Ok(Self {
            function: function.at,
            common: at(common)?,
            notify: (at(notify)?, notify.bytes),
            multiplier: *multiplier,
            interrupt: at(interrupt)?,
            copy,
            bars,
        })
    }

    /// Where its registers are, which are to be mapped.
    pub fn bars(&self) -> impl Iterator<Item = Place> {
        self.bars.iter().copied().flatten()
    }

    /// Where the register is that says, when it is read, why the device has interrupted, and ends its interrupt. It has 8
    /// bits: 1 is a used buffer, and 2 a change of the configuration.
    pub const fn interrupt(&self) -> u64 {
        self.interrupt
    }

    /// Its registers.
    ///
    /// # Errors
    ///
    /// [`NotUsed::Transport`].
    ///
    /// # Safety
    ///
    /// All of [`Self::bars`] are mapped one to one as device memory, for good, and only this is made of them.
    pub unsafe fn registers(self) -> Result<PciRegisters, NotUsed> {
        let mut root = PciRoot::new(self.copy);
        let transport = PciTransport::new::<OneToOne, _>(&mut root, self.function)?;
        Ok(PciRegisters {
            transport: ManuallyDrop::new(transport),
            common: self.common,
            notify: self.notify,
            multiplier: self.multiplier,
            bells: [None; MOST_QUEUES],
        })
    }
}

/// Addresses of BARs in a [`Copy`], which are those of processors.
struct OneToOne;

// SAFETY: it gives no memory out, and what is mapped is where it says, as `Prepared::registers` was promised.
unsafe impl Hal for OneToOne {
    fn dma_alloc(_pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        (0, NonNull::dangling())
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        -1
    }

    unsafe fn mmio_phys_to_virt(paddr: PhysAddr, _size: usize) -> NonNull<u8> {
        // No BAR is at address 0.
        NonNull::new(with_exposed_provenance_mut(paddr as usize)).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(_buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        0
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// The registers of a device on a PCI bus.
#[derive(Debug)]
pub struct PciRegisters {
    transport: ManuallyDrop<PciTransport>,
    common: u64,
    notify: (u64, u32),
    multiplier: u32,
    /// Where each queue is notified, as far as it was asked.
    bells: [Option<u64>; MOST_QUEUES],
}

impl PciRegisters {
    /// Where queue `queue` is notified; `None` where that is not in the structure for notifications.
    fn find_bell(&mut self, queue: u16) -> Option<u64> {
        let register = |offset| with_exposed_provenance_mut::<u16>((self.common + offset) as usize);
        // SAFETY: registers of the common structure, which are aligned, and mapped as `Prepared::registers` was promised.
        let offset = unsafe {
            register(QUEUE_SELECT).write_volatile(queue);
            register(QUEUE_NOTIFY_OFF).read_volatile()
        };
        let (start, bytes) = self.notify;
        // The product of 16 and 32 bits.
        let offset = u64::from(offset) * u64::from(self.multiplier);
        (offset + 2 <= u64::from(bytes)).then_some(start + offset)
    }
}

impl Transport for PciRegisters {
    fn device_type(&self) -> DeviceType {
        self.transport.device_type()
    }

    fn read_device_features(&mut self) -> u64 {
        self.transport.read_device_features()
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.transport.write_driver_features(driver_features);
    }

    /// The most descriptors of a queue: none, where it cannot be notified.
    fn max_queue_size(&mut self, queue: u16) -> u32 {
        let bell = self.find_bell(queue);
        match self.bells.get_mut(usize::from(queue)) {
            Some(place) if bell.is_some() => {
                *place = bell;
                self.transport.max_queue_size(queue)
            }
            _ => 0,
        }
    }

    fn notify(&mut self, queue: u16) {
        let Some(Some(bell)) = self.bells.get(usize::from(queue)) else { return };
        // SAFETY: in the structure for notifications, and aligned: so are its start and each distance in it.
        unsafe { with_exposed_provenance_mut::<u16>(*bell as usize).write_volatile(queue) };
    }

    fn get_status(&self) -> DeviceStatus {
        self.transport.get_status()
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.transport.set_status(status);
    }

    fn set_guest_page_size(&mut self, guest_page_size: u32) {
        self.transport.set_guest_page_size(guest_page_size);
    }

    fn requires_legacy_layout(&self) -> bool {
        self.transport.requires_legacy_layout()
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver_area: PhysAddr,
        device_area: PhysAddr,
    ) {
        self.transport.queue_set(queue, size, descriptors, driver_area, device_area);
    }

    fn queue_unset(&mut self, queue: u16) {
        self.transport.queue_unset(queue);
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        self.transport.queue_used(queue)
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        self.transport.ack_interrupt()
    }

    fn read_config_generation(&self) -> u32 {
        self.transport.read_config_generation()
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        self.transport.read_config_space(offset)
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        offset: usize,
        value: T,
    ) -> Result<(), Error> {
        self.transport.write_config_space(offset, value)
    }
}
