//! An access to a device that a guest has come out with.

use mayfly_x86_decode::Width;

use crate::svm::exit::Port;

/// What a guest has come out with, for a device.
pub(super) struct Pending {
    pub(super) data: [u8; 8],
    pub(super) length: usize,
    pub(super) answered: bool,
    pub(super) what: What,
}

/// By what.
#[derive(Clone, Copy)]
pub(super) enum What {
    Port(Port),
    /// The instruction that was decoded reads, or writes; it goes on there.
    Memory {
        width: Width,
        address: u64,
        write: bool,
        next: u64,
    },
}

impl Pending {
    pub(super) fn port(port: Port, data: [u8; 8]) -> Self {
        Self { data, length: port.bytes.into(), answered: false, what: What::Port(port) }
    }

    /// Where it is: a port, or an address.
    pub(super) fn at(&self) -> u64 {
        match self.what {
            What::Port(port) => port.port.into(),
            What::Memory { address, .. } => address,
        }
    }

    pub(super) fn data(&mut self) -> &mut [u8] {
        &mut self.data[..self.length]
    }

    /// Answers it as what is not there does: it reads as all ones.
    pub(super) fn answer_nothing(&mut self) {
        self.data().fill(0xff);
        self.answered = true;
    }
}
