//! Waits that have nothing to do with KVM: for a client, for a child, for a lock of the program's, for a lock on a file, for
//! another thread, for who has stopped the process, for who answers in the kernel's place.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

fn time(long: Duration) -> libc::timespec {
    libc::timespec { tv_sec: long.as_secs() as i64, tv_nsec: i64::from(long.subsec_nanos()) }
}

/// Waits for a process that was forked, and sleeps as long.
pub(crate) fn for_child(long: Duration) {
    let time = time(long);
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
pub(crate) fn for_lock(long: Duration) {
    // SAFETY: initialised, never moved, and handed to the C library alone; unlocked by the thread that has it.
    let lock = || unsafe { libc::pthread_mutex_lock(MUTEX.0.get()) };
    // SAFETY: as above.
    let unlock = || unsafe { libc::pthread_mutex_unlock(MUTEX.0.get()) };
    let (sender, receiver) = std::sync::mpsc::channel();
    // Nobody waits for the thread itself: that would be another wait, and as long.
    thread::spawn(move || {
        lock();
        let _ = sender.send(());
        thread::sleep(long);
        unlock();
    });
    let _ = receiver.recv();
    lock();
    unlock();
}

/// Waits for a lock on a file that a process has as long which was forked.
pub(crate) fn for_file(long: Duration) {
    // SAFETY: takes nothing.
    let me = unsafe { libc::gettid() };
    let path = std::env::temp_dir().join(format!("planted-{me}"));
    let time = time(long);
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

/// Sleeps so often for a millisecond.
pub(crate) fn in_short_sleeps(times: u64) {
    (0..times).for_each(|_| thread::sleep(Duration::from_millis(1)));
}

/// Reads so often from a pipe what another thread writes a millisecond after it was asked.
pub(crate) fn in_turns(times: u64) {
    let (mut asked, mut asks) = std::io::pipe().unwrap();
    let (mut answered, mut answers) = std::io::pipe().unwrap();
    thread::spawn(move || {
        while asked.read_exact(&mut [0]).is_ok() {
            thread::sleep(Duration::from_millis(1));
            let _ = answers.write_all(&[0]);
        }
    });
    for _ in 0..times {
        asks.write_all(&[0]).unwrap();
        answered.read_exact(&mut [0]).unwrap();
    }
}

/// Is stopped by a process that was forked, and goes on when that one says so.
pub(crate) fn stopped(milliseconds: u64) {
    let time = time(Duration::from_millis(milliseconds));
    let me = std::process::id() as libc::pid_t;
    let begun = Instant::now();
    // SAFETY: the child calls the kernel alone, needs no lock that another thread may have had, and never returns.
    unsafe {
        if libc::fork() == 0 {
            libc::kill(me, libc::SIGSTOP);
            libc::nanosleep(&raw const time, std::ptr::null_mut());
            libc::kill(me, libc::SIGCONT);
            libc::_exit(0);
        }
    }
    // It computes until it notices that it was stopped, or that nobody has stopped it.
    let (mut last, mut longest) = (begun, Duration::ZERO);
    while longest < Duration::from_millis(milliseconds / 2) && last - begun < Duration::from_secs(2)
    {
        let now = Instant::now();
        (longest, last) = (longest.max(now - last), now);
    }
}

/// Makes a system call that another thread answers in the kernel's place (`seccomp_unotify(2)`).
pub(crate) fn answered_late(milliseconds: u64) {
    let (sender, receiver) = std::sync::mpsc::channel::<libc::c_int>();
    thread::spawn(move || {
        let Ok(listener) = receiver.recv() else { return };
        // SAFETY: both structures are the kernel's, which fills the first and reads the second.
        unsafe {
            let mut asked: libc::seccomp_notif = std::mem::zeroed();
            libc::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked);
            thread::sleep(Duration::from_millis(milliseconds));
            let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
            answer.id = asked.id;
            libc::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
        }
    });
    let listener = notified_of(libc::SYS_getppid);
    sender.send(listener).unwrap();
    // SAFETY: takes nothing.
    unsafe { libc::getppid() };
}

/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)` of linux/seccomp.h.
const SECCOMP_IOCTL_NOTIF_RECV: libc::c_ulong = 0xC050_2100;
const SECCOMP_IOCTL_NOTIF_SEND: libc::c_ulong = 0xC018_2101;

/// A descriptor that tells of this thread's calls with one number, which wait for an answer.
fn notified_of(number: libc::c_long) -> libc::c_int {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the filter outlives the call, which copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (set, listen) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        let fd = libc::syscall(libc::SYS_seccomp, set, listen, &raw const program);
        assert!(fd >= 0, "seccomp: {}", std::io::Error::last_os_error());
        fd as libc::c_int
    }
}
