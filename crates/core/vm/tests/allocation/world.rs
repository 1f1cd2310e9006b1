//! A VM with something of everything, and all that can be seen of it.

use std::sync::{Arc, Mutex};

use mayfly_iobus::{IoRange, Ioeventfd, Refused, Relocation};
use mayfly_memslot::{Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region, SlotId, USER_SLOTS};
use mayfly_stage2::Format;
use mayfly_vm::{Access, Bus, Device, Event, Exit, Guest, Requests, SlotZap, Translation};

use super::common::{
    AnyDevice, Call, Log, Outcome, Recorder, Setup, TestFormat, TestVcpu, TestVm, perform, read,
    read_port, region, same, write, write_port,
};

pub(crate) const LOGGED: u16 = 1;
pub(crate) const PLAIN: u16 = 2;
pub(crate) const DEVICE: IoRange = IoRange { start: 0x10_0000, len: 0x10 };
pub(crate) const EVENTFD: Ioeventfd = Ioeventfd { address: 0x10_0004, len: 4, datamatch: Some(9) };
pub(crate) const FREE: IoRange = IoRange { start: 0x20_0000, len: 0x10 };
pub(crate) const FREE_EVENTFD: Ioeventfd =
    Ioeventfd { address: 0x10_0004, len: 4, datamatch: Some(10) };
pub(crate) const PORT: IoRange = IoRange { start: 0x3f8, len: 8 };
pub(crate) const FREE_PORT: IoRange = IoRange { start: 0x70, len: 2 };
/// What the mover does.
pub(crate) const MOVE: [Relocation; 1] = [Relocation::Device { from: DEVICE, to: FREE }];
const MOVER: IoRange = IoRange { start: 0x30_0000, len: 8 };
/// Memory that no vCPU has touched, far from what they have.
pub(crate) const UNTOUCHED: u64 = 0x8000_0000;

/// A VM with something of everything, and four vCPUs, which is when their list is full; and one that has no vCPU yet.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) vm: TestVm,
    pub(crate) vcpus: Vec<TestVcpu>,
    pub(crate) empty: TestVm,
    pub(crate) log: Log,
    /// A device to register.
    pub(crate) spare: AnyDevice,
    /// A device that moves another.
    mover: Arc<Mover>,
}

/// A device that does [`MOVE`] when it is written to, if it has a VM.
#[derive(Default)]
struct Mover {
    vm: Mutex<Option<TestVm>>,
    errno: Mutex<i32>,
}

impl Device for Mover {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        if let Some(vm) = &*self.vm.lock().unwrap() {
            let moved = vm.relocate(Bus::Mmio, &MOVE);
            *self.errno.lock().unwrap() = moved.map_or_else(|error| error.errno(), |()| 0);
        }
    }
}

/// A guest that writes one byte, and has nothing of its own on the heap.
struct Writer {
    gpa: u64,
    data: [u8; 1],
    answered: bool,
}

impl<F: Format> Guest<F> for Writer {
    fn enter(&mut self, _translation: Translation<F>, _requests: &Requests) -> Event {
        let access = Access::data(Gpa::new(self.gpa), 1, true);
        if self.answered { Event::Halt } else { Event::Access(access) }
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn answered(&mut self) {
        self.answered = true;
    }
}

/// Whatever a call made or gave back, dropped when that has been looked at.
#[allow(dead_code)]
pub(crate) enum Made {
    Nothing,
    Device(AnyDevice),
    Vcpu(TestVcpu),
}

/// All that can be seen of a VM.
#[derive(Debug, PartialEq)]
pub(crate) struct Sight {
    slots: String,
    vcpus: [usize; 2],
    outcomes: Vec<Outcome>,
    calls: Vec<Call>,
}

impl World {
    pub(crate) fn new(slot_zap: SlotZap) -> Self {
        let setup = Setup::new(slot_zap);
        let (vm, empty) = (setup.vm(), setup.vm());
        let log = Log::default();
        vm.set_memory_region(&logged()).unwrap();
        vm.set_memory_region(&region(PLAIN, 0x20, 4)).unwrap();
        vm.set_memory_region(&region(9, UNTOUCHED / PAGE_SIZE, 4)).unwrap();
        vm.register_device(Bus::Mmio, DEVICE, Recorder::device(1, &log)).unwrap();
        vm.register_eventfd(Bus::Mmio, EVENTFD, Recorder::device(2, &log)).unwrap();
        vm.register_device(Bus::Pio, PORT, Recorder::device(3, &log)).unwrap();
        let vcpus = (0..4).map(|id| vm.create_vcpu(id).unwrap()).collect();
        let mover = Arc::new(Mover::default());
        vm.register_device(Bus::Mmio, MOVER, mover.clone()).unwrap();
        Self { setup, vm, vcpus, empty, spare: Recorder::device(4, &log), mover, log }
    }

    /// What a vCPU meets, wherever a change of the tests below would show; then what is not the guest's to see.
    pub(crate) fn look(&mut self) -> Sight {
        let vcpu = &mut self.vcpus[0];
        let mut outcomes = Vec::new();
        for gfn in [0x10, 0x20, 0x30, 0x40, 0xfee00] {
            outcomes.push(read(vcpu, gfn * PAGE_SIZE, 8));
            outcomes.push(write(vcpu, gfn * PAGE_SIZE + 8, &[0; 8]));
        }
        for start in [DEVICE.start, FREE.start] {
            outcomes.push(read(vcpu, start, 4));
        }
        for value in [9, 10, 11] {
            outcomes.push(write(vcpu, EVENTFD.address, &[value, 0, 0, 0]));
        }
        for port in [PORT.start, FREE_PORT.start] {
            let port = u16::try_from(port).unwrap();
            outcomes.push(read_port(vcpu, port, 1));
            outcomes.push(write_port(vcpu, port, &[0]));
        }
        Sight {
            slots: format!("{:?}", self.vm.slots()),
            vcpus: [self.vm.vcpu_count(), self.empty.vcpu_count()],
            outcomes,
            calls: self.log.take(),
        }
    }

    /// Ends everything, and asserts that no frame is left.
    pub(crate) fn end(self, what: &str) {
        let Self { setup, vm, empty, vcpus, .. } = self;
        drop(vcpus);
        vm.destroy();
        empty.destroy();
        assert!(setup.reclaim());
        assert_eq!(setup.hardware.live(), 0, "{what}: all frames come back");
    }

    pub(crate) fn set(&self, region: &Region<Hva>) -> Result<Made, i32> {
        self.vm.set_memory_region(region).map(|()| Made::Nothing).map_err(|error| error.errno())
    }

    /// The spare device, unless it was refused: then it has to come back.
    pub(crate) fn registered(&self, result: Result<(), Refused<AnyDevice>>) -> Result<Made, i32> {
        result.map(|()| Made::Nothing).map_err(|refused| {
            assert!(same(&refused.device, &self.spare), "a refused device is given back");
            refused.error.errno()
        })
    }

    /// Has a guest write to the mover.
    pub(crate) fn move_from_handler(&mut self) -> Result<Made, i32> {
        *self.mover.vm.lock().unwrap() = Some(self.vm.clone());
        let mut guest = Writer { gpa: MOVER.start, data: [1], answered: false };
        assert_eq!(self.vcpus[2].run(&mut guest), Exit::Halt);
        // Or the VM would have a device that has the VM.
        *self.mover.vm.lock().unwrap() = None;
        match *self.mover.errno.lock().unwrap() {
            0 => Ok(Made::Nothing),
            errno => Err(errno),
        }
    }

    /// Has the last vCPU write at `gpa`.
    pub(crate) fn touch(&mut self, gpa: u64) -> Result<Made, i32> {
        let access = Access::data(Gpa::new(gpa), 8, true);
        match self.vcpus[3].run(&mut Toucher(access)) {
            Exit::Halt => Ok(Made::Nothing),
            Exit::Failed(failed, error) => {
                assert_eq!(failed, access);
                Err(error.errno())
            }
            exit => panic!("{exit:?}"),
        }
    }
}

pub(crate) fn logged() -> Region<Hva> {
    Region { flags: Flags::LOG_DIRTY_PAGES, ..region(LOGGED, 0x10, 4) }
}

pub(crate) fn private() -> Region<Hva> {
    Region { slot: SlotId::main(USER_SLOTS), ..region(7, 0xfee00, 1) }
}

/// A guest that makes one access to memory, and has nothing of its own on the heap.
pub(crate) struct Toucher(pub(crate) Access);

impl Guest<TestFormat> for Toucher {
    fn enter(&mut self, translation: Translation<TestFormat>, _requests: &Requests) -> Event {
        if perform::<TestFormat>(translation, self.0).is_some() {
            Event::Halt
        } else {
            Event::Access(self.0)
        }
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("there is memory")
    }

    fn answered(&mut self) {}
}
