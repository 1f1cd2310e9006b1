//! What the tests share: a VM without a worker, a guest of one access, and a device that keeps what it is asked.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::sync::{Arc, Mutex};

use mayfly_iobus::{IoRange, Ioeventfd};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::{Host, Platform};
use mayfly_vm::{Access, Config, Device, Event, Exit, Guest, PortAccess, Requests, Vcpu, Vm};

pub(crate) type AnyDevice = Arc<dyn Device>;
pub(crate) type TestVm = Vm<AnyDevice, Hva>;
pub(crate) type TestVcpu = Vcpu<AnyDevice, Hva>;

pub(crate) fn platform() -> Arc<dyn Platform> {
    Arc::new(Host::new())
}

pub(crate) fn vm() -> TestVm {
    Vm::create(platform(), Config::default()).unwrap()
}

/// Slot `index`, of `pages` pages from guest frame `gfn` on, with host memory that is never looked at: see [`hva`].
pub(crate) fn region(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: Flags::empty(),
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: pages * PAGE_SIZE,
        backing: hva(index, 0),
    }
}

/// The host address of byte `offset` of slot `index`.
pub(crate) fn hva(index: u16, offset: u64) -> Hva {
    Hva::new(((u64::from(index) + 1) << 32) + offset)
}

pub(crate) fn range(start: u64, len: u64) -> IoRange {
    IoRange { start, len }
}

pub(crate) fn eventfd(address: u64, len: u32, datamatch: Option<u64>) -> Ioeventfd {
    Ioeventfd { address, len, datamatch }
}

/// What came of an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was one to host memory.
    Memory(Hva),
    /// A device answered it; with the bytes that the guest then has.
    Device(Vec<u8>),
    /// The vCPU's caller got it.
    Exit(Exit),
}

/// Runs a guest that reads `len` bytes at `gpa`, and halts.
pub(crate) fn read(vcpu: &mut TestVcpu, gpa: u64, len: usize) -> Outcome {
    access(vcpu, gpa, vec![0; len], false)
}

/// Runs a guest that writes `data` at `gpa`, and halts.
pub(crate) fn write(vcpu: &mut TestVcpu, gpa: u64, data: &[u8]) -> Outcome {
    access(vcpu, gpa, data.to_vec(), true)
}

/// Runs a guest that reads `len` bytes from `port`, and halts.
pub(crate) fn read_port(vcpu: &mut TestVcpu, port: u16, len: u8) -> Outcome {
    let event = Event::Port(PortAccess { port, len, write: false });
    Once::new(event, vec![0; len.into()]).run(vcpu)
}

/// Runs a guest that writes `data` to `port`, and halts.
pub(crate) fn write_port(vcpu: &mut TestVcpu, port: u16, data: &[u8]) -> Outcome {
    let len = u8::try_from(data.len()).unwrap();
    Once::new(Event::Port(PortAccess { port, len, write: true }), data.to_vec()).run(vcpu)
}

pub(crate) fn mmio_exit(gpa: u64, len: u64, write: bool) -> Outcome {
    Outcome::Exit(Exit::Mmio(Access { gpa: Gpa::new(gpa), len, write }))
}

pub(crate) fn port_exit(port: u16, len: u8, write: bool) -> Outcome {
    Outcome::Exit(Exit::Port(PortAccess { port, len, write }))
}

fn access(vcpu: &mut TestVcpu, gpa: u64, data: Vec<u8>, write: bool) -> Outcome {
    let access = Access { gpa: Gpa::new(gpa), len: data.len() as u64, write };
    Once::new(Event::Access(access), data).run(vcpu)
}

/// A guest that comes out with one event, and then halts.
pub(crate) struct Once {
    event: Option<Event>,
    data: Vec<u8>,
    memory: Option<Hva>,
}

impl Once {
    pub(crate) fn new(event: Event, data: Vec<u8>) -> Self {
        Self { event: Some(event), data, memory: None }
    }

    pub(crate) fn run(mut self, vcpu: &mut TestVcpu) -> Outcome {
        match (vcpu.run(&mut self), self.memory) {
            (Exit::Halt, Some(memory)) => Outcome::Memory(memory),
            (Exit::Halt, None) => Outcome::Device(self.data),
            (exit, _) => Outcome::Exit(exit),
        }
    }
}

impl Guest<Hva> for Once {
    fn enter(&mut self, _requests: &Requests) -> Event {
        self.event.take().unwrap_or(Event::Halt)
    }

    fn access(&mut self, memory: Hva) {
        assert_eq!(self.memory.replace(memory), None, "one access is performed once");
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

/// What a [`Recorder`] was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `len` bytes at `offset` were read from device `id`.
    Read { id: u8, offset: u64, len: usize },
    /// `data` was written at `offset` of device `id`.
    Write { id: u8, offset: u64, data: Vec<u8> },
}

/// What some devices were asked, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Call>>>);

impl Log {
    /// The calls since the last time.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn push(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }
}

/// A device that writes down what it is asked, and of which every byte reads as its number.
pub(crate) struct Recorder {
    id: u8,
    log: Log,
}

impl Recorder {
    pub(crate) fn device(id: u8, log: &Log) -> AnyDevice {
        Arc::new(Self { id, log: log.clone() })
    }
}

impl Device for Recorder {
    fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(self.id);
        self.log.push(Call::Read { id: self.id, offset, len: data.len() });
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.log.push(Call::Write { id: self.id, offset, data: data.to_vec() });
    }
}

/// Whether both are the same device, not only equal ones.
pub(crate) fn same(one: &AnyDevice, other: &AnyDevice) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
