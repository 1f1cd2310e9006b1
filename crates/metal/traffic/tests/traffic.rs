//! What guests do, on a file and on the loopback.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::thread;

use mayfly_traffic::{disk, network};

/// A file in the build's directory, which is on a disk: not every file system takes accesses past its cache.
fn file(name: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, vec![0; 64 * disk::PAGE]).unwrap();
    path
}

#[test]
fn what_was_written_is_read_and_a_page_that_differs_is_found() {
    let path = file("pages");
    if disk::write(&path, 64).is_err_and(|error| error.raw_os_error() == Some(22)) {
        return println!("not run: this file system takes no accesses past its cache");
    }
    disk::read(&path, 64).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[7], 9 * 4096 + 5).unwrap();
    let error = disk::read(&path, 64).unwrap_err().to_string();
    assert!(error.contains("page 18 is not as it was written"), "{error}");
    assert!(disk::read(&path, 65).is_err(), "the file is shorter");
}

fn answering() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || network::answer(&listener));
    address
}

#[test]
fn requests_and_bulk_are_answered_one_connection_after_the_other() {
    let at = answering();
    network::ask(at, 1, 300).unwrap();
    network::ask(at, 1500, 10).unwrap();
    network::send(at, (1 << 20) + 1).unwrap();
    assert!(network::ask(at, network::MOST + 1, 1).is_err());
    // One that goes away ends nobody else's.
    TcpStream::connect(at).unwrap().write_all(&[1, 2]).unwrap();
    network::ask(at, 1, 1).unwrap();
}

#[test]
fn an_answer_that_is_not_what_was_sent_is_found() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut connection = listener.accept().unwrap().0;
        connection.read_exact(&mut [0; 17]).unwrap();
        connection.write_all(&[9]).unwrap();
    });
    let error = network::ask(at, 1, 2).unwrap_err().to_string();
    assert!(error.contains("answer 0 is not what was sent"), "{error}");
}
