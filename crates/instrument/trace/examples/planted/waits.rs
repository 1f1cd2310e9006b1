//! Waits that have nothing to do with KVM: for a client, for a child, for a lock of the program's, for a lock on a file.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

fn time(milliseconds: u64) -> libc::timespec {
    libc::timespec { tv_sec: 0, tv_nsec: (milliseconds * 1_000_000) as i64 }
}

/// Waits for a process that was forked, and sleeps as long.
pub(crate) fn for_child(milliseconds: u64) {
    let time = time(milliseconds);
    // SAFETY: the child calls the kernel alone, needs no lock that another thread may have had, and never returns.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::nanosleep(&raw const time, std::ptr::null_mut());
            libc::_exit(0);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library orders those who lock it.
unsafe impl Sync for Mutex {}

static MUTEX: Mutex = Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// Waits for a mutex of the C library's that another thread has as long.
pub(crate) fn for_lock(milliseconds: u64) {
    // SAFETY: initialised, never moved, and handed to the C library alone; unlocked by the thread that has it.
    let lock = || unsafe { libc::pthread_mutex_lock(MUTEX.0.get()) };
    // SAFETY: as above.
    let unlock = || unsafe { libc::pthread_mutex_unlock(MUTEX.0.get()) };
    let (sender, receiver) = std::sync::mpsc::channel();
    // Nobody waits for the thread itself: that would be another wait, and as long.
    thread::spawn(move || {
        lock();
        let _ = sender.send(());
        thread::sleep(Duration::from_millis(milliseconds));
        unlock();
    });
    let _ = receiver.recv();
    lock();
    unlock();
}

/// Waits for a lock on a file that a process has as long which was forked.
pub(crate) fn for_file(milliseconds: u64) {
    let path = std::env::temp_dir().join(format!("planted-{}", std::process::id()));
    let time = time(milliseconds);
    let (mine, theirs) = (File::create(&path).unwrap(), File::create(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let (mut reads, writes) = std::io::pipe().unwrap();
    // Nobody waits for the child itself: that would be another wait, and as long.
    // SAFETY: the child calls the kernel alone, needs no lock that another thread may have had, and never returns.
    unsafe {
        if libc::fork() == 0 {
            libc::flock(theirs.as_raw_fd(), libc::LOCK_EX);
            libc::write(writes.as_raw_fd(), b"l".as_ptr().cast(), 1);
            libc::nanosleep(&raw const time, std::ptr::null_mut());
            libc::_exit(0);
        }
    }
    drop((theirs, writes));
    let _ = reads.read_exact(&mut [0]);
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(mine.as_raw_fd(), libc::LOCK_EX) };
}

/// Takes a connection, which a thread makes later.
pub(crate) fn for_client(milliseconds: u64) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let client = thread::spawn(move || {
        thread::sleep(Duration::from_millis(milliseconds));
        TcpStream::connect(address).unwrap();
    });
    listener.accept().unwrap();
    client.join().unwrap();
}
