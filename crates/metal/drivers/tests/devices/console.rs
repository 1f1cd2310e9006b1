use std::collections::VecDeque;

use mayfly_drivers::{Broken, Change, Console, DeviceStatus, DeviceType, Unusable, WRITE_BYTES};
use proptest::prelude::*;

use crate::fake::{Fake, Host, VERSION_1};

const MULTIPORT: u64 = 1 << 1;
const TELL: u16 = 2;
const ANSWER: u16 = 3;
const RECEIVE: u16 = 4;
const SEND: u16 = 5;

const NAME: &str = "a.name";
/// The buffers of the port, each way, and their bytes; and the buffers of messages.
const BUFFERS: usize = 8;
const BYTES: usize = 2048;
const TOLD: usize = 32;

const ADD: u16 = 1;
const REMOVE: u16 = 2;
const OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

fn configuration(ports: u32) -> Vec<u8> {
    [&[0; 4][..], &ports.to_le_bytes(), &[0; 4]].concat()
}

fn console() -> (Fake, Console<Host, Fake>) {
    let device = Fake::new(DeviceType::Console, u64::MAX, &configuration(2));
    let console = Console::new(device.clone(), NAME).unwrap();
    (device, console)
}

fn message(port: u32, event: u16, value: u16, name: &[u8]) -> Vec<u8> {
    [&port.to_le_bytes()[..], &event.to_le_bytes(), &value.to_le_bytes(), name].concat()
}

/// The device puts bytes into the next buffer of a queue; whether there was one that has room.
fn puts(device: &Fake, queue: u16, bytes: &[u8]) -> bool {
    let Some((number, parts)) = device.next(queue) else { return false };
    // Where the device has lied before, the driver has taken the buffer back.
    if !parts[0].is_written || (parts[0].len as usize) < bytes.len() {
        return false;
    }
    parts[0].write(bytes);
    device.used(queue, number.into(), bytes.len() as u32);
    true
}

/// What the driver has said since this was asked last: the port, and what about.
fn said(device: &Fake) -> Vec<(u32, u16, u16)> {
    let mut all = Vec::new();
    while let Some((number, parts)) = device.next(ANSWER) {
        let bytes = parts[0].read();
        assert_eq!((bytes.len(), parts.len()), (8, 1));
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        all.push((u32::from_le_bytes(*bytes.first_chunk().unwrap()), half(4), half(6)));
        device.used(ANSWER, number.into(), 0);
    }
    all
}

/// The next that the driver has written, which the device uses.
fn written(device: &Fake) -> Option<Vec<u8>> {
    let (number, parts) = device.next(SEND)?;
    device.used(SEND, number.into(), 0);
    Some(parts[0].read())
}

/// The same, with the port opened from the other side.
fn opened() -> (Fake, Console<Host, Fake>) {
    let (device, mut console) = console();
    for bytes in [
        message(1, ADD, 1, &[]),
        message(1, PORT_NAME, 1, format!("{NAME}\0").as_bytes()),
        message(1, OPEN, 1, &[]),
    ] {
        assert!(puts(&device, TELL, &bytes));
    }
    let heard: Vec<_> = std::iter::from_fn(|| console.hear().unwrap()).collect();
    assert_eq!(heard, [Change::Other, Change::Other, Change::Opened]);
    (device, console)
}

#[test]
fn the_port_is_asked_for_by_its_name_and_opened() {
    let (device, mut console) = console();
    assert_eq!(device.0.lock().unwrap().taken, VERSION_1 | MULTIPORT);
    assert_eq!(said(&device), [(u32::MAX, 0, 1)], "the device is ready");
    assert!(puts(&device, TELL, &message(1, ADD, 1, &[])));
    assert_eq!(console.hear(), Ok(Some(Change::Other)));
    assert_eq!(said(&device), [(1, 3, 1)], "the port is ready");
    assert!(puts(&device, TELL, &message(1, PORT_NAME, 1, b"a.name\0")));
    assert_eq!(console.hear(), Ok(Some(Change::Other)));
    assert_eq!(said(&device), [(1, OPEN, 1)], "it is open here");
    assert!(!console.is_open(), "it is not there");
    for (value, change) in [(1, Change::Opened), (0, Change::Closed), (1, Change::Opened)] {
        assert!(puts(&device, TELL, &message(1, OPEN, value, &[])));
        assert_eq!(console.hear(), Ok(Some(change)));
        assert_eq!(console.is_open(), value == 1);
    }
    assert!(puts(&device, TELL, &message(1, REMOVE, 1, &[])));
    assert_eq!(console.hear(), Ok(Some(Change::Closed)));
    assert!(!console.is_open());
    assert_eq!(console.hear(), Ok(None));
    assert_eq!(said(&device), []);
}

#[test]
fn a_port_of_another_name_or_number_is_not_used() {
    for (port, name) in [
        (1, &b"a.nam\0"[..]),
        (1, b"a.name2\0"),
        (1, b""),
        (1, b"a.name\0\0"),
        (0, b"a.name\0"),
        (2, b"a.name\0"),
    ] {
        let (device, mut console) = console();
        for bytes in [
            message(port, ADD, 1, &[]),
            message(port, PORT_NAME, 1, name),
            message(port, OPEN, 1, &[]),
        ] {
            assert!(puts(&device, TELL, &bytes));
        }
        while console.hear().unwrap().is_some() {}
        assert!(!said(&device).contains(&(port, OPEN, 1)), "{port} {name:?}");
        assert!(puts(&device, RECEIVE, b"stop"));
        assert_eq!(console.read(&mut [0; 8]), Ok(0), "{port} {name:?}");
        assert!(!console.is_open());
    }
}

#[test]
fn what_comes_is_read_in_order_in_any_pieces() {
    let (device, mut console) = opened();
    let sent: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let (mut rest, mut read, mut piece) = (&sent[..], Vec::new(), 1);
    while read.len() < sent.len() {
        let len = rest.len().min(piece % (BYTES + 1));
        if puts(&device, RECEIVE, &rest[..len]) {
            rest = &rest[len..];
        }
        let mut into = vec![0; 1 + piece % 300];
        let count = console.read(&mut into).unwrap();
        read.extend_from_slice(&into[..count]);
        piece += 37;
    }
    assert_eq!(read, sent);
}

#[test]
fn what_is_not_read_waits_at_the_other_side() {
    let (device, mut console) = opened();
    let count = (0..100).take_while(|_| puts(&device, RECEIVE, &[7; 100])).count();
    assert_eq!(count, BUFFERS);
    assert_eq!(console.read(&mut [0; 99]), Ok(99));
    assert!(!puts(&device, RECEIVE, &[7]), "the first is not read to its end");
    assert_eq!(console.read(&mut [0; 99]), Ok(1));
    assert!(puts(&device, RECEIVE, &[7]));
}

#[test]
fn what_is_written_goes_out_whole_and_there_is_room_again_when_it_is_taken() {
    let (device, mut console) = opened();
    assert_eq!(console.write(&[]), Ok(true), "nothing is not written");
    assert_eq!(written(&device), None);
    for round in 0..3_u8 {
        for number in 0..BUFFERS as u8 {
            assert_eq!(console.write(&[round, number, 9]), Ok(true));
        }
        console.ignore();
        assert_eq!(console.write(b"more"), Ok(false));
        assert!(!console.listen(true) && device.is_listened_to(SEND), "it tells of room");
        for number in 0..BUFFERS as u8 {
            assert_eq!(written(&device), Some(vec![round, number, 9]));
        }
        assert!(console.listen(true));
        console.ignore();
        assert!(!device.is_listened_to(SEND));
    }
    assert_eq!(console.write(&vec![3; WRITE_BYTES + 1]), Ok(true));
    assert_eq!(written(&device), Some(vec![3; WRITE_BYTES]));
}

#[test]
fn it_interrupts_when_it_is_listened_to_and_nothing_that_came_before_is_missed() {
    let (device, mut console) = opened();
    console.ignore();
    assert!(!device.is_listened_to(RECEIVE) && !device.is_listened_to(TELL));
    assert!(!console.listen(true));
    assert!(device.is_listened_to(RECEIVE) && device.is_listened_to(TELL));
    assert!(!device.is_listened_to(SEND), "nobody has wanted room");
    puts(&device, RECEIVE, b"ab");
    assert!(console.listen(true));
    assert_eq!(console.read(&mut [0; 1]), Ok(1));
    assert!(console.listen(true), "there is a rest");
    assert_eq!(console.read(&mut [0; 1]), Ok(1));
    assert!(!console.listen(true));
    console.ignore();
    puts(&device, RECEIVE, b"ab");
    assert!(!console.listen(false) && !device.is_listened_to(RECEIVE), "nobody reads it now");
    assert!(console.listen(true));
    puts(&device, TELL, &message(1, OPEN, 0, &[]));
    assert!(console.listen(false));
}

#[test]
fn what_a_program_has_written_is_read_when_it_has_gone_and_does_not_open_the_port() {
    let (device, mut console) = opened();
    assert!(puts(&device, RECEIVE, b"xyz"));
    assert!(puts(&device, TELL, &message(1, OPEN, 0, &[])));
    assert_eq!(console.hear(), Ok(Some(Change::Closed)));
    for _ in 0..3 {
        assert_eq!(console.read(&mut [0; 1]), Ok(1));
        assert!(!console.is_open(), "nobody is there");
    }
    assert!(puts(&device, TELL, &message(1, OPEN, 1, &[])));
    assert_eq!(console.hear(), Ok(Some(Change::Opened)));
    assert!(console.is_open());
}

#[test]
fn a_device_that_cannot_be_used_says_why() {
    let with = |offers: u64, ports: u32, most: u32| {
        let device = Fake::new(DeviceType::Console, offers, &configuration(ports));
        device.0.lock().unwrap().most = most;
        let made = Console::<Host, _>::new(device.clone(), NAME).err();
        assert!(device.0.lock().unwrap().status.is_empty(), "it is left stopped");
        made
    };
    assert_eq!(with(MULTIPORT, 2, 256), Some(Unusable::Legacy));
    assert_eq!(with(VERSION_1, 2, 256), Some(Unusable::Ports));
    assert_eq!(with(VERSION_1 | MULTIPORT, 1, 256), Some(Unusable::Ports));
    assert!(matches!(with(VERSION_1 | MULTIPORT, 2, 4), Some(Unusable::Queue(_))));
    let device = Fake::new(DeviceType::Console, u64::MAX, &[0; 4]);
    assert_eq!(Console::<Host, _>::new(device, NAME).err(), Some(Unusable::Configuration));
}

#[test]
fn a_device_that_has_failed_or_lies_in_its_rings_is_used_no_more() {
    for queue in [TELL, ANSWER, RECEIVE, SEND] {
        let (device, mut console) = opened();
        // What was said so far was taken back.
        for _ in 0..2 {
            device.used(queue, 77, 1);
        }
        puts(&device, TELL, &message(1, REMOVE, 1, &[]));
        puts(&device, TELL, &message(1, ADD, 1, &[]));
        let mut found = Ok(());
        for _ in 0..4 {
            found = found
                .and(console.hear().map(|_| ()))
                .and(console.read(&mut [0; 8]).map(|_| ()))
                .and(console.write(b"x").map(|_| ()));
        }
        assert_eq!(found, Err(Broken::Rings), "{queue}");
        assert_eq!(device.0.lock().unwrap().stops, 1);
        assert_eq!(console.look(true), Err(Broken::Rings));
        assert!(!console.listen(true));
    }
    let (device, mut console) = opened();
    assert_eq!(console.look(true), Ok(()));
    device.0.lock().unwrap().status |= DeviceStatus::DEVICE_NEEDS_RESET;
    assert_eq!(console.look(true), Err(Broken::NeedsReset));
    assert_eq!(console.hear(), Err(Broken::NeedsReset));
    assert_eq!(console.read(&mut [0; 8]), Err(Broken::NeedsReset));
    assert_eq!(console.write(b"x"), Err(Broken::NeedsReset));
    assert_eq!(device.0.lock().unwrap().stops, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Tells(Vec<u8>),
    Comes(usize),
    /// The device says that it has used this, with that length.
    Says(u16, u32, u32),
    Jumps(u16, u16),
    Hear,
    Read(usize),
    Write(usize),
    Taken,
    Listen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let lie = prop_oneof![
        (2..6_u16, prop_oneof![0..40_u32, any::<u32>()], any::<u32>())
            .prop_map(|(queue, number, len)| Step::Says(queue, number, len)),
        (2..6_u16, any::<u16>()).prop_map(|(queue, count)| Step::Jumps(queue, count)),
    ];
    let event = prop_oneof![Just(ADD), Just(REMOVE), Just(OPEN), Just(PORT_NAME), any::<u16>()];
    let name = prop_oneof![Just(b"a.name\0".to_vec()), prop::collection::vec(any::<u8>(), 0..120)];
    let told = (0..3_u32, event, 0..2_u16, name)
        .prop_map(|(port, event, value, name)| message(port, event, value, &name));
    prop_oneof![
        6 => told.prop_map(Step::Tells),
        1 => prop::collection::vec(any::<u8>(), 0..12).prop_map(Step::Tells),
        10 => (0..=BYTES).prop_map(Step::Comes),
        1 => lie,
        8 => Just(Step::Hear),
        10 => (0..3000_usize).prop_map(Step::Read),
        8 => (0..3000_usize).prop_map(Step::Write),
        6 => Just(Step::Taken),
        2 => Just(Step::Listen),
    ]
}

proptest! {
    /// As long as the device does not lie, what is read is what has come, and what is written goes out, both in order. When
    /// it lies, it is found out or not, and stays stopped once it is.
    #[test]
    fn bytes_come_and_go_in_order_whatever_is_told(steps in prop::collection::vec(any_step(), 0..300)) {
        let (device, mut console) = opened();
        let (mut lies, mut is_broken, mut waits, mut next) = (false, false, 0, 0_u8);
        let (mut came, mut wrote) = (VecDeque::<u8>::new(), VecDeque::<Vec<u8>>::new());
        // A port that was removed is another when it comes again.
        let mut is_kept = true;
        for step in steps {
            match step {
                Step::Tells(bytes) if !is_broken => {
                    let is_told = waits < TOLD && puts(&device, TELL, &bytes);
                    waits += usize::from(is_told);
                    is_kept &= !(is_told && bytes.starts_with(&message(1, REMOVE, 0, &[])[..6]));
                }
                Step::Comes(len) if !is_broken => {
                    let bytes: Vec<u8> = (0..len).map(|_| { next = next.wrapping_add(1); next }).collect();
                    if puts(&device, RECEIVE, &bytes) {
                        came.extend(&bytes);
                    }
                }
                Step::Says(queue, number, len) => (lies, ()) = (true, device.used(queue, number, len)),
                Step::Jumps(queue, count) => (lies, ()) = (true, device.jump(queue, count)),
                Step::Hear => match console.hear() {
                    Ok(heard) => waits = if heard.is_some() { waits.saturating_sub(1) } else { 0 },
                    Err(_) => is_broken = true,
                },
                Step::Read(len) => {
                    let mut into = vec![0; len];
                    match console.read(&mut into) {
                        Ok(count) if !lies && is_kept => {
                            let expected: Vec<u8> = came.drain(..count).collect();
                            prop_assert_eq!(&into[..count], &expected[..]);
                        }
                        Ok(count) => prop_assert!(count <= len),
                        Err(_) => is_broken = true,
                    }
                }
                Step::Write(len) => {
                    let bytes = vec![len as u8; len];
                    match console.write(&bytes) {
                        Ok(true) if len > 0 => wrote.push_back(bytes[..len.min(WRITE_BYTES)].to_vec()),
                        Ok(true) => {}
                        Ok(false) => prop_assert!(lies || wrote.len() == BUFFERS),
                        Err(_) => is_broken = true,
                    }
                }
                Step::Taken if !is_broken && !lies => prop_assert_eq!(written(&device), wrote.pop_front()),
                Step::Listen => {
                    console.listen(true);
                }
                _ => {}
            }
            prop_assert!(lies || !is_broken);
            prop_assert_eq!(device.0.lock().unwrap().stops, u32::from(is_broken));
        }
    }
}
