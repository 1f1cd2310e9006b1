//! A guest that makes one access.

use std::marker::PhantomData;
use std::sync::mpsc::Sender;

use mayfly_memslot::{Gfn, Gpa, Hva, PAGE_SHIFT, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Format, Leaf, Level, Permissions};
use mayfly_vm::{
    Access, AccessKind, CacheOp, CacheTraps, Event, Exit, Guest, PortAccess, Requests, Translation,
};

use super::{TestFormat, TestVcpu, frames, platform};

/// What came of an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was performed on the memory that the tables say: the byte at this address, if the page is in the frame of
    /// its number.
    Memory(Hva),
    /// A device answered it; with the bytes that the guest then has.
    Device(Vec<u8>),
    /// The vCPU's caller got it.
    Exit(Exit),
}

/// Runs a guest that reads `len` bytes at `gpa`, and halts.
pub(crate) fn read<F: Format>(vcpu: &mut TestVcpu<F>, gpa: u64, len: usize) -> Outcome {
    access(vcpu, gpa, vec![0; len], false)
}

/// Runs a guest that writes `data` at `gpa`, and halts.
pub(crate) fn write<F: Format>(vcpu: &mut TestVcpu<F>, gpa: u64, data: &[u8]) -> Outcome {
    access(vcpu, gpa, data.to_vec(), true)
}

/// Runs a guest that reads `len` bytes from `port`, and halts.
pub(crate) fn read_port<F: Format>(vcpu: &mut TestVcpu<F>, port: u16, len: u8) -> Outcome {
    let event = Event::Port(PortAccess { port, len, write: false });
    Once::new(event, vec![0; len.into()]).run(vcpu)
}

/// Runs a guest that writes `data` to `port`, and halts.
pub(crate) fn write_port<F: Format>(vcpu: &mut TestVcpu<F>, port: u16, data: &[u8]) -> Outcome {
    let len = u8::try_from(data.len()).unwrap();
    Once::new(Event::Port(PortAccess { port, len, write: true }), data.to_vec()).run(vcpu)
}

pub(crate) fn mmio_exit(gpa: u64, len: u64, write: bool) -> Outcome {
    Outcome::Exit(Exit::Mmio(Access::data(Gpa::new(gpa), len, write)))
}

pub(crate) fn port_exit(port: u16, len: u8, write: bool) -> Outcome {
    Outcome::Exit(Exit::Port(PortAccess { port, len, write }))
}

fn access<F: Format>(vcpu: &mut TestVcpu<F>, gpa: u64, data: Vec<u8>, write: bool) -> Outcome {
    let access = Access::data(Gpa::new(gpa), data.len() as u64, write);
    Once::new(Event::Access(access), data).run(vcpu)
}

/// Where `access` is performed, if `translation` allows it: what a CPU without a TLB finds.
pub(crate) fn perform<F: Format>(translation: Translation<F>, access: Access) -> Option<Hva> {
    attempt::<F>(translation, access).ok()
}

/// As [`perform`], but otherwise what comes out: the access, as far as it lies in the page that faults.
fn attempt<F: Format>(translation: Translation<F>, access: Access) -> Result<Hva, Access> {
    let Access { gpa, len, .. } = access;
    let wanted = access.wanted();
    let place = |access: Access| {
        // SAFETY: a program that stands for a guest.
        let top = unsafe { translation.load() }.top;
        let found = frames::walk::<F>(top, access.gpa.gfn());
        let usable =
            |leaf: &Leaf| leaf.permissions.contains(wanted) && (leaf.accessed || F::SETS_ACCESSED);
        let (_, leaf) = found.filter(|(_, leaf)| usable(leaf)).ok_or(access)?;
        Ok(Hva::new((leaf.pfn.get() << PAGE_SHIFT) + access.gpa.page_offset()))
    };
    let first = place(access)?;
    let here = PAGE_SIZE - gpa.page_offset();
    if let Some(gpa) = gpa.checked_add(here).filter(|_| len > here) {
        place(Access { gpa, len: len - here, kind: AccessKind::Opaque, ..access })?;
    }
    Ok(first)
}

/// A guest that makes one access, by memory where its tables allow it, and then halts.
pub(crate) struct Once<F = TestFormat> {
    event: Event,
    data: Vec<u8>,
    /// A device has answered.
    answered: bool,
    memory: Option<Hva>,
    entries: usize,
    format: PhantomData<F>,
}

/// A fault resolves at the first attempt, unless something changes meanwhile.
const ATTEMPTS: usize = 100;

impl<F: Format> Once<F> {
    pub(crate) fn new(event: Event, data: Vec<u8>) -> Self {
        Self { event, data, answered: false, memory: None, entries: 0, format: PhantomData }
    }

    pub(crate) fn run(mut self, vcpu: &mut TestVcpu<F>) -> Outcome {
        match (vcpu.run(&mut self), self.memory) {
            (Exit::Halt, Some(memory)) => Outcome::Memory(memory),
            (Exit::Halt, None) => Outcome::Device(self.data),
            (exit, _) => Outcome::Exit(exit),
        }
    }
}

impl<F: Format> Guest<F> for Once<F> {
    fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
        self.entries += 1;
        assert!(self.entries < ATTEMPTS, "the fault was said to be resolved, and is not");
        if self.answered {
            return Event::Halt;
        }
        let Event::Access(access) = self.event else { return self.event };
        match attempt::<F>(translation, access) {
            Ok(memory) => {
                self.memory = Some(memory);
                Event::Halt
            }
            Err(faulted) => Event::Access(faulted),
        }
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn answered(&mut self) {
        self.answered = true;
    }
}

/// What `vcpu`'s tables say of `gfn`, without a fault: its page, and the level of the leaf that it lies in.
pub(crate) fn translation<F: Format>(vcpu: &mut TestVcpu<F>, gfn: u64) -> Option<(Level, Leaf)> {
    struct Look<F>(Gfn, Option<(Level, Leaf)>, PhantomData<F>);
    impl<F: Format> Guest<F> for Look<F> {
        fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
            // SAFETY: a program that stands for a guest.
            let top = unsafe { translation.load() }.top;
            self.1 = frames::walk::<F>(top, self.0);
            Event::Halt
        }
        fn forget(&mut self, _: Gfn) {}

        fn data(&mut self) -> &mut [u8] {
            unreachable!("it accesses nothing")
        }

        fn answered(&mut self) {}
    }
    let mut look = Look::<F>(Gfn::new(gfn), None, PhantomData);
    assert_eq!(vcpu.run(&mut look), Exit::Halt);
    look.1
}

/// The root that a vCPU runs on.
pub(crate) fn top<F: Format>(vcpu: &mut TestVcpu<F>) -> Pfn {
    struct Top(Option<Pfn>);
    impl<F: Format> Guest<F> for Top {
        fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
            // SAFETY: a program that stands for a guest.
            self.0 = Some(unsafe { translation.load() }.top);
            Event::Halt
        }
        fn forget(&mut self, _: Gfn) {}

        fn data(&mut self) -> &mut [u8] {
            &mut []
        }

        fn answered(&mut self) {}
    }
    let mut guest = Top(None);
    assert_eq!(vcpu.run(&mut guest), Exit::Halt);
    guest.0.unwrap()
}

/// A guest that does something to its caches, if it is to, and halts.
pub(crate) struct Toggle {
    op: Option<CacheOp>,
    /// What it was last entered with.
    pub(crate) traps: CacheTraps,
}

impl Toggle {
    pub(crate) fn new(op: Option<CacheOp>) -> Self {
        Self { op, traps: CacheTraps::None }
    }
}

impl<F: Format> Guest<F> for Toggle {
    fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
        self.traps = translation.traps;
        self.op.take().map_or(Event::Halt, Event::Caches)
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("it accesses nothing")
    }

    fn answered(&mut self) {}
}

/// A guest that never leaves by itself: it sleeps until something is asked. Says whenever it is entered, and under which
/// root.
pub(crate) struct Sleeper(pub(crate) Sender<Pfn>);

impl<F: Format> Guest<F> for Sleeper {
    fn enter(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        // SAFETY: a program that stands for a guest.
        self.0.send(unsafe { translation.load() }.top).unwrap();
        requests.wait(&*platform());
        Event::Request
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("it accesses nothing")
    }

    fn answered(&mut self) {}
}
