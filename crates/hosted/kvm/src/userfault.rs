//! Memory whose faults this process serves: `userfaultfd(2)`.
//!
//! A thread reads the faults of the memory, and copies the page that each asks for from a snapshot. Whoever has touched the
//! page, also KVM for its guest, waits meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::{Error, GuestMemory, Snapshot};

const PAGE: u64 = 4096;

/// The kernel's structures (`include/uapi/linux/userfaultfd.h`), of which a call fills a part.
#[repr(C)]
#[derive(Default)]
struct Api {
    version: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

const API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const SET_API: Opcode = opcode::read_write::<Api>(0xaa, 0x3f);
const REGISTER: Opcode = opcode::read_write::<Register>(0xaa, 0x00);
const COPY: Opcode = opcode::read_write::<Copy>(0xaa, 0x03);

/// Bytes of a message, and what it says: first its kind, and the address of a fault as the third word.
const MESSAGE: usize = 32;
const PAGE_FAULT: u8 = 0x12;
const ADDRESS: usize = 16;

/// A thread that serves the faults of some memory, until this is dropped.
#[derive(Debug)]
pub struct Userfault {
    /// Written when it is to end.
    end: Arc<OwnedFd>,
    served: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Userfault {
    /// Memory of the size of `snapshot`, of which no page is there, and whose faults are served from it.
    ///
    /// # Errors
    /// [`Error::Call`] with `userfaultfd`: EPERM where the kernel lets only the administrator serve faults of KVM, ENOSYS;
    /// or with what registers the memory.
    pub fn of(snapshot: &Arc<Snapshot>) -> Result<(GuestMemory, Self), Error> {
        let memory = GuestMemory::map(snapshot.size())?;
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: it is used for the memory that was just mapped alone, whose bytes are accessed by volatile slices and by
        // guests.
        let faults = unsafe { userfaultfd(flags) }.map_err(Error::call("userfaultfd"))?;
        let mut api = Api { version: API, ..Api::default() };
        // SAFETY: the structure is the one that this call fills.
        unsafe { ioctl(&faults, Updater::<SET_API, _>::new(&mut api)) }
            .map_err(Error::call("UFFDIO_API"))?;
        let (start, len) = (memory.hva(), memory.size() as u64);
        let mut register = Register { start, len, mode: MODE_MISSING, ioctls: 0 };
        // SAFETY: as above; the range is the memory's.
        unsafe { ioctl(&faults, Updater::<REGISTER, _>::new(&mut register)) }
            .map_err(Error::call("UFFDIO_REGISTER"))?;
        let end = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::call("eventfd"))?;
        let (end, served) = (Arc::new(end), Arc::<AtomicU64>::default());
        let thread = {
            let (end, served, snapshot) =
                (Arc::clone(&end), Arc::clone(&served), Arc::clone(snapshot));
            // So that the range is not another mapping's before the thread has ended.
            let memory = memory.clone();
            thread::spawn(move || {
                serve(&faults, &end, &served, &snapshot, memory.hva());
                drop(memory);
            })
        };
        Ok((memory, Self { end, served, thread: Some(thread) }))
    }

    /// How many faults it has served.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Userfault {
    fn drop(&mut self) {
        let told = write(&*self.end, &1_u64.to_ne_bytes());
        debug_assert!(told.is_ok());
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Serves faults of the memory at `start` from `snapshot`, until `end` is written. What cannot be served stays waiting, until
/// the end: then it is told that nothing is there.
fn serve(faults: &OwnedFd, end: &OwnedFd, served: &AtomicU64, snapshot: &Snapshot, start: u64) {
    loop {
        let mut ready = [
            PollFd::new(faults, PollFlags::IN),
            PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        let mut message = [0_u8; MESSAGE];
        if !matches!(read(faults, &mut message), Ok(MESSAGE)) || message[0] != PAGE_FAULT {
            continue;
        }
        let Some(address) =
            message[ADDRESS..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
        else {
            continue;
        };
        let dst = address & !(PAGE - 1);
        let Ok(src) = snapshot.address((dst - start) as usize, PAGE as usize) else { continue };
        let mut copy = Copy { dst, src, len: PAGE, mode: 0, copied: 0 };
        // Before a thread that waits for it goes on.
        served.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the structure is the one that this call fills; the snapshot has the page that is read, and the page that is
        // written is absent, of memory that is there as long as this thread.
        let mut give = || unsafe { ioctl(faults, Updater::<COPY, _>::new(&mut copy)) };
        // Again while mappings of the process are changing. Another error: the page is there, by another thread's fault.
        while matches!(give(), Err(Errno::AGAIN)) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_served_as_they_are_touched_and_again_after_they_were_given_back() {
        let original = GuestMemory::map(16 * PAGE as usize).unwrap();
        for page in 0..16 {
            original.write(page * PAGE as usize, &(page as u64 + 7).to_le_bytes()).unwrap();
        }
        let snapshot = Arc::new(Snapshot::take(&original).unwrap());
        let (memory, served) = match Userfault::of(&snapshot) {
            Ok(made) => made,
            Err(Error::Call { call: "userfaultfd", errno }) => {
                eprintln!("not run: userfaultfd gives {errno}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(served.served(), 0);
        for page in [3, 9, 3] {
            assert_eq!(memory.read_u64(page * PAGE as usize).unwrap(), page as u64 + 7);
        }
        assert_eq!(served.served(), 2);
        memory.write(3 * PAGE as usize, &[0; 8]).unwrap();
        memory.give_back().unwrap();
        assert_eq!(memory.read_u64(3 * PAGE as usize).unwrap(), 10);
        assert_eq!((served.served(), memory.own_bytes().unwrap()), (3, PAGE));
    }
}
