//! The registers of a device, which are memory of the test: what is written there can be seen, and nothing answers.

use std::alloc::{Layout, alloc_zeroed};

use mayfly_drivers::pci::{Bus, PciRegisters, Window, Windows};
use mayfly_drivers::{DeviceStatus, DeviceType, Transport};

use crate::functions::{Fake, Machine};

const BYTES: usize = 0x4000;

/// Memory in place of a BAR, which is never freed. The bus has it at 4 GiB.
struct Memory(u64);

impl Memory {
    fn new() -> Self {
        // SAFETY: it has a size.
        let start = unsafe { alloc_zeroed(Layout::from_size_align(BYTES, BYTES).unwrap()) };
        Self(start.expose_provenance() as u64)
    }

    fn at<T>(&self, offset: u64) -> *mut T {
        std::ptr::with_exposed_provenance_mut((self.0 + offset) as usize)
    }

    fn get<T: Copy>(&self, offset: u64) -> T {
        // SAFETY: inside of the memory, aligned, and of a number.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    fn set<T>(&self, offset: u64, value: T) {
        // SAFETY: as above.
        unsafe { self.at::<T>(offset).write_volatile(value) };
    }
}

/// A network card whose registers are in such memory.
fn card() -> (Memory, PciRegisters) {
    let memory = Memory::new();
    let window =
        Window { bus: 1 << 32, cpu: memory.0, bytes: BYTES as u64, is_prefetchable: false };
    let narrow = Window { bus: 0x1000, cpu: 0x1000, bytes: 0x1000, is_prefetchable: false };
    let machine = Machine::with([((2, 0), Fake::virtio(0x1041))]);
    let mut bus = Bus::new(machine, 0);
    let function = bus.function(2 << 3).unwrap();
    let prepared = bus.prepare(&function, &mut Windows::new([window, narrow])).unwrap();
    // SAFETY: it is the memory above, of which nothing else is made.
    (memory, unsafe { prepared.registers() }.unwrap())
}

#[test]
fn registers_are_where_processors_see_them() {
    let (memory, mut card) = card();
    assert_eq!(card.device_type(), DeviceType::Network);
    memory.set(0x2008, 0x1234_5678_u32);
    assert_eq!(card.read_config_space::<u32>(8), Ok(0x1234_5678));
    card.set_status(DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER);
    assert_eq!((memory.get::<u8>(20), card.get_status().bits()), (3, 3));
    memory.set(24, 256_u16);
    assert_eq!(card.max_queue_size(1), 256);
    card.queue_set(1, 128, 0x1000, 0x2000, 0x3000);
    let written = (memory.get::<u16>(22), memory.get::<u16>(24), memory.get::<u16>(28));
    assert_eq!(written, (1, 128, 1), "the queue is selected, of that size, and enabled");
    assert_eq!([32, 40, 48].map(|at| memory.get::<u64>(at)), [0x1000, 0x2000, 0x3000]);
    memory.set(0x1000, 3_u8);
    assert_eq!(card.ack_interrupt().bits(), 3);
}

#[test]
fn a_queue_is_notified_where_the_device_has_said_at_first() {
    let (memory, mut card) = card();
    memory.set(24, 256_u16);
    memory.set(30, 7_u16);
    assert_eq!(card.max_queue_size(2), 256);
    // A device that was lost answers with ones.
    memory.set(30, u16::MAX);
    card.notify(2);
    assert_eq!(memory.get::<u16>(0x3000 + 4 * 7), 2);
    card.notify(3);
    card.notify(700);
    let all = (0..0x1000).step_by(2).map(|at| memory.get::<u16>(0x3000 + at));
    assert_eq!(
        all.filter(|word| *word != 0).count(),
        1,
        "a queue that was not asked for has no place"
    );
}

#[test]
fn a_queue_that_could_not_be_notified_has_no_descriptors() {
    let (memory, mut card) = card();
    memory.set(24, 256_u16);
    for (offset, most) in [(0x3ff_u16, 256), (0x400, 0), (u16::MAX, 0)] {
        memory.set(30, offset);
        assert_eq!(card.max_queue_size(0), most, "{offset:#x}");
    }
    memory.set(30, 0_u16);
    assert_eq!((card.max_queue_size(7), card.max_queue_size(8)), (256, 0));
}

#[test]
fn the_end_of_a_device_that_answers_with_ones_waits_for_nothing() {
    let memory = {
        let (memory, mut card) = card();
        card.set_status(DeviceStatus::ACKNOWLEDGE);
        memory.set(20, u8::MAX);
        assert!(card.get_status().contains(DeviceStatus::DEVICE_NEEDS_RESET));
        memory
    };
    assert_eq!(memory.get::<u8>(20), u8::MAX);
}
