//! The rings: who is told of what, their order, and their ends.

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::Served;

use crate::guest::*;
use crate::{ALL, FLUSH, Machine, Ram};

#[test]
fn the_line_is_high_from_a_used_chain_to_its_acknowledgement() {
    let mut machine = Machine::with(Ram::new(), VERSION_1);
    assert!(!machine.device.interrupt());
    machine.request(FLUSH, 0, &[], false);
    assert!(machine.device.interrupt());
    assert_eq!(get(&machine.device, 0x60), 1);
    set(&mut machine.device, 0x64, 1);
    assert!(!machine.device.interrupt());
    machine.memory.store_release(AVAILABLE, 1).unwrap();
    machine.request(FLUSH, 0, &[], false);
    assert!(!machine.device.interrupt(), "the driver wants none");
}

#[test]
fn with_the_event_index_each_side_is_told_from_the_index_on_that_it_names() {
    let mut machine = Machine::with(Ram::new(), ALL);
    let used_event = AVAILABLE + 4 + 2 * 8;
    for round in 0..20_u16 {
        machine.memory.store_release(used_event, round / 3 * 3).unwrap();
        machine.request(FLUSH, 0, &[], false);
        assert_eq!(machine.device.interrupt(), round % 3 == 0, "{round}");
        assert_eq!(machine.memory.word(USED + 4 + 8 * 8), round + 1, "tell me of the next");
        set(&mut machine.device, 0x64, 3);
    }
}

/// Indexes are of 16 bits, and wrap; a ring of the most descriptors is served to its end.
#[test]
fn rings_go_on_when_their_indexes_wrap_at_any_size() {
    for size in [1, 256_u16] {
        let mut machine = Machine::with(Ram::new(), ALL);
        start(&mut machine.device, ALL, size.into());
        machine.driver = Driver { size, available: 0 };
        for round in 0..0x1_0003_u32 {
            assert_eq!(machine.request(FLUSH, 0, &[], true), (0, 1), "{round} of {size}");
        }
        assert_eq!(machine.memory.word(USED + 2), 3);
        assert_eq!(machine.memory.word(USED + 4 + 8 * u64::from(size)), 3, "tell me of the next");
    }
}

/// Many at a time: each is used once, in its order, and none twice.
#[test]
fn a_ring_that_is_full_is_served_once_in_its_order() {
    let mut machine = Machine::with(Ram::new(), VERSION_1);
    machine.memory.put(TABLE, &[&FLUSH.to_le_bytes()[..], &[0; 12]].concat());
    for round in 0..3_u16 {
        for head in [6, 0, 4, 2] {
            let status = DATA + u64::from(head);
            descriptor(&machine.memory, DESCRIPTORS, head, (TABLE, 16, NEXT, head + 1));
            descriptor(&machine.memory, DESCRIPTORS, head + 1, (status, 1, WRITE, 0));
            machine.driver.offer(&machine.memory, head);
        }
        for (served, head) in [6, 0, 4, 2_u8].into_iter().enumerate() {
            assert_eq!(machine.device.serve(&machine.memory), Served::One);
            let used = round * 4 + served as u16;
            assert_eq!(machine.memory.word(USED + 2), used + 1);
            let element = machine.memory.get(USED + 4 + 8 * u64::from(used % 8), 8);
            assert_eq!(element, [head, 0, 0, 0, 1, 0, 0, 0]);
        }
        assert_eq!(machine.device.serve(&machine.memory), Served::Nothing);
    }
}
