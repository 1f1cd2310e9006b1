//! vCPUs that stop where a test wants them, until it lets them go on.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use mayfly_memslot::Gfn;
use mayfly_vm::{Access, Device, Event, Guest, Requests, Translation};

use super::{TestFormat, perform};

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Order(Arc<Mutex<Vec<&'static str>>>);

impl Order {
    pub(crate) fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    pub(crate) fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Where a vCPU stops, on its side: says that it is there, and goes on when it is told to.
pub(crate) struct Stop {
    order: Order,
    arrived: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

/// The test's side.
pub(crate) struct Stopped {
    arrived: Receiver<()>,
    go_on: Sender<()>,
}

impl Stop {
    pub(crate) fn new(order: &Order) -> (Self, Stopped) {
        let (arrive, arrived) = channel();
        let (go_on, gone_on) = channel();
        let (arrive, gone_on) = (Mutex::new(arrive), Mutex::new(gone_on));
        (Self { order: order.clone(), arrived: arrive, go_on: gone_on }, Stopped { arrived, go_on })
    }

    pub(crate) fn here(&self) {
        self.arrived.lock().unwrap().send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        self.order.note("the vCPU went on");
    }
}

impl Stopped {
    /// Waits until the vCPU is there.
    pub(crate) fn wait(&self) {
        self.arrived.recv().unwrap();
    }

    pub(crate) fn go_on(&self) {
        self.go_on.send(()).unwrap();
    }
}

impl Device for Stop {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        self.here();
        data.fill(1);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        self.here();
    }
}

/// A guest that stops whenever it is entered, deaf to requests, and then makes its one access.
pub(crate) struct Stopping {
    pub(crate) stop: Stop,
    pub(crate) access: Option<Access>,
}

impl Guest<TestFormat> for Stopping {
    fn enter(&mut self, translation: Translation<TestFormat>, _requests: &Requests) -> Event {
        self.stop.here();
        match self.access.take_if(|access| perform::<TestFormat>(translation, *access).is_some()) {
            Some(_) => Event::Halt,
            None => self.access.map_or(Event::Halt, Event::Access),
        }
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}
