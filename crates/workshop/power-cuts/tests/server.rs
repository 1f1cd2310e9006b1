//! The server, by a client that speaks the protocol, or does not.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mayfly_power_cuts::{Disk, Made, Random, SECTOR, Served, Store, serve};

const SECTORS: usize = 64;
const BYTES: u64 = (SECTORS * SECTOR) as u64;
/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server of an empty disk, which is cut after so many changes.
fn server(changes: u64, seed: u64) -> (UnixStream, JoinHandle<(Disk, io::Result<Served>)>) {
    let (client, stream) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let store = Store::new(vec![0; SECTORS * SECTOR]).unwrap();
        let mut disk = Disk { store, random: Random::new(seed), made: Made::default() };
        let (receiver, ends) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        let hang_up = || ends.shutdown(Shutdown::Both).unwrap_or_default();
        let served = serve(stream, receiver, hang_up, &mut disk, changes, PATIENCE);
        (disk, served)
    });
    (client, server)
}

fn bytes<const COUNT: usize>(client: &mut UnixStream) -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

fn option(client: &mut UnixStream, kind: u32, data: &[u8]) {
    client.write_all(b"IHAVEOPT").unwrap();
    client.write_all(&kind.to_be_bytes()).unwrap();
    client.write_all(&(data.len() as u32).to_be_bytes()).unwrap();
    client.write_all(data).unwrap();
}

/// What is answered to an option of that kind: how, and with what.
fn option_reply(client: &mut UnixStream, kind: u32) -> (u32, Vec<u8>) {
    assert_eq!(bytes(client), 0x0003_e889_0455_65a9_u64.to_be_bytes());
    assert_eq!(bytes(client), kind.to_be_bytes());
    let how = u32::from_be_bytes(bytes(client));
    let mut data = vec![0; u32::from_be_bytes(bytes(client)) as usize];
    client.read_exact(&mut data).unwrap();
    (how, data)
}

fn greet(client: &mut UnixStream) {
    assert_eq!(&bytes::<16>(client), b"NBDMAGICIHAVEOPT");
    assert_eq!(bytes(client), [0, 3]);
    client.write_all(&3_u32.to_be_bytes()).unwrap();
}

/// Begins with requests.
fn go(client: &mut UnixStream) {
    greet(client);
    option(client, 1, b"");
    assert_eq!(bytes(client), BYTES.to_be_bytes());
    assert_eq!(bytes(client), [0, 0b110_0101]);
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const DISCARD: u16 = 4;
const ZERO: u16 = 6;

fn request(client: &mut impl Write, kind: u16, cookie: u64, offset: u64, len: u32) {
    let mut all = 0x2560_9513_u32.to_be_bytes().to_vec();
    all.extend([0, 0]);
    all.extend(kind.to_be_bytes());
    all.extend(cookie.to_be_bytes());
    all.extend(offset.to_be_bytes());
    all.extend(len.to_be_bytes());
    // One that is cut does not hear it.
    let _ = client.write_all(&all);
}

fn write(client: &mut impl Write, cookie: u64, sector: u64, byte: u8) {
    request(client, WRITE, cookie, sector * SECTOR as u64, SECTOR as u32);
    let _ = client.write_all(&[byte; SECTOR]);
}

/// An answer without data: to which request, and its error.
fn answer(client: &mut UnixStream) -> (u64, u32) {
    assert_eq!(bytes(client), 0x6744_6698_u32.to_be_bytes());
    let error = u32::from_be_bytes(bytes(client));
    (u64::from_be_bytes(bytes(client)), error)
}

#[test]
fn a_client_asks_what_there_is_and_goes() {
    let (mut client, server) = server(1, 0);
    greet(&mut client);
    // Structured replies; a list; a name that is longer than all; and an export, with all that there is of it.
    option(&mut client, 8, b"");
    assert_eq!(option_reply(&mut client, 8), (1 << 31 | 1, vec![]));
    option(&mut client, 3, b"");
    assert_eq!(option_reply(&mut client, 3), (2, vec![0; 4]));
    assert_eq!(option_reply(&mut client, 3), (1, vec![]));
    for wrong in [&b"\0\0\0\x05disk\0\0"[..], b"\0\0\0\x04disk\0\x01", b"\0\0\0\0", b""] {
        option(&mut client, 7, wrong);
        assert_eq!(option_reply(&mut client, 7), (1 << 31 | 3, vec![]), "{wrong:?}");
    }
    for kind in [6, 7] {
        option(&mut client, kind, b"\0\0\0\x04disk\0\x01\0\x03");
        let mut export = vec![0, 0];
        export.extend(BYTES.to_be_bytes());
        export.extend([0, 0b110_0101]);
        assert_eq!(option_reply(&mut client, kind), (3, export));
        assert_eq!(option_reply(&mut client, kind).1[..6], [0, 3, 0, 0, 2, 0]);
        assert_eq!(option_reply(&mut client, kind), (1, vec![]));
    }
    request(&mut client, DISCONNECT, 0, 0, 0);
    assert_eq!(server.join().unwrap().1.unwrap(), Served::Gone);
}

#[test]
fn what_makes_no_sense_ends_the_connection_or_is_an_error() {
    for what in [&[0; 20][..], b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff"] {
        let (mut client, server) = server(1, 0);
        client.write_all(what).unwrap();
        assert!(server.join().unwrap().1.is_err());
    }
    let (mut client, server) = server(1, 0);
    go(&mut client);
    for (kind, offset, len) in
        [(READ, BYTES, 512), (READ, 0, 511), (READ, u64::MAX, 512), (5, 0, 512)]
    {
        request(&mut client, kind, 7, offset, len);
        assert_eq!(answer(&mut client), (7, 22), "{kind} {offset} {len}");
    }
    client.write_all(&[1; 28]).unwrap();
    assert_eq!(server.join().unwrap().1.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn what_is_written_is_read_and_what_is_flushed_is_durable() {
    let (mut client, server) = server(6, 0);
    go(&mut client);
    let done = |client: &mut UnixStream, cookie| assert_eq!(answer(client), (cookie, 0));
    write(&mut client, 1, 3, 0x33);
    done(&mut client, 1);
    write(&mut client, 2, 4, 0x44);
    done(&mut client, 2);
    request(&mut client, ZERO, 3, 4 * 512, 512);
    done(&mut client, 3);
    request(&mut client, FLUSH, 4, 0, 0);
    done(&mut client, 4);
    write(&mut client, 5, 3, 0x55);
    done(&mut client, 5);
    request(&mut client, READ, 6, 3 * 512, 1024);
    done(&mut client, 6);
    assert_eq!(bytes::<512>(&mut client), [0x55; 512]);
    assert_eq!(bytes::<512>(&mut client), [0; 512]);
    request(&mut client, DISCARD, 7, 0, u32::MAX);
    let (Disk { store, made, .. }, end) = server.join().unwrap();
    assert_eq!(end.unwrap(), Served::Cut);
    assert_eq!(store.durable()[3 * SECTOR], 0x33, "the last write was not flushed");
    assert_eq!(store.durable()[4 * SECTOR], 0);
    assert_eq!(made, Made { writes: 3, flushes: 1, discards: 1, zeroes: 1 });
}

/// A flush is for what was answered before it came. Where it comes beside a write, it is not for that write, even if the write is
/// carried out first; and the order of the answers shows that such requests are carried out in any order.
#[test]
fn a_flush_is_not_for_what_is_under_way() {
    let (mut volatile, mut first) = (0, 0);
    for seed in 0..200 {
        let (mut client, server) = server(4, seed);
        go(&mut client);
        write(&mut client, 1, 0, 1);
        assert_eq!(answer(&mut client), (1, 0));
        let mut both = Vec::new();
        write(&mut both, 2, 1, 2);
        request(&mut both, FLUSH, 3, 0, 0);
        client.write_all(&both).unwrap();
        let answers = [answer(&mut client).0, answer(&mut client).0];
        first += u32::from(answers == [3, 2]);
        write(&mut client, 4, 2, 4);
        let (Disk { store, .. }, end) = server.join().unwrap();
        assert_eq!(end.unwrap(), Served::Cut);
        assert_eq!(store.durable()[0], 1, "it was answered, and then flushed");
        assert_eq!(store.durable()[2 * SECTOR], 0, "it was not flushed");
        volatile += u32::from(answers == [2, 3] && store.durable()[SECTOR] == 0);
    }
    assert!(volatile > 0, "a flush makes durable what was answered after it had come");
    assert!(first > 0, "requests are carried out in the order in which they come");
}

#[test]
fn it_is_cut_after_the_change_that_was_asked_for() {
    let mut answered = 0;
    for seed in 0..40 {
        let (mut client, server) = server(3, seed);
        go(&mut client);
        for number in 0..2 {
            write(&mut client, number, number, 9);
            assert_eq!(answer(&mut client), (number, 0));
        }
        write(&mut client, 2, 2, 9);
        let (Disk { store, .. }, end) = server.join().unwrap();
        assert_eq!(end.unwrap(), Served::Cut);
        let mut written = vec![0; store.len()];
        store.read(0, &mut written).unwrap();
        assert_eq!([0, 1, 2, 3].map(|sector| written[sector * SECTOR]), [9, 9, 9, 0]);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        answered += usize::from(!rest.is_empty());
    }
    assert!((1..40).contains(&answered), "the last is answered, or not: {answered}");
}
