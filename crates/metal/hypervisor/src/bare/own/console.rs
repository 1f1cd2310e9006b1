//! The machine's own console, of which the port named [`NAME`] is for a program that controls the monitor.

use mayfly_drivers::{Broken, Change, Console, Registers, Unusable};

use super::CONSOLE;
use super::dma::Dma;
use crate::bare::processor::once::Once;
use crate::bare::processor::own;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads::Bell;
use crate::bare::threads::interrupts::OWN;

/// The name of the port.
const NAME: &str = "mayfly.control";

/// The console of the machine.
pub(crate) struct OwnConsole(SpinLock<Console<Dma, Registers>>);

static IT: Once<OwnConsole> = Once::new();

pub(super) fn set(registers: Registers) -> Result<(), Unusable> {
    IT.set(OwnConsole(SpinLock::new(Console::new(registers, NAME)?)));
    Ok(())
}

/// The console, if the machine has one that can be used.
pub(crate) fn get() -> Option<&'static OwnConsole> {
    IT.get()
}

/// Rings when something has come or has changed, or the console is broken.
pub(crate) fn bell() -> &'static Bell {
    &OWN[CONSOLE]
}

impl OwnConsole {
    /// As [`Console::look`], if the console has told of a change.
    pub(crate) fn look(&self) -> Result<(), Broken> {
        let has_changed = own::take_change(CONSOLE);
        if has_changed { self.0.lock().look(own::is_heard(CONSOLE)) } else { Ok(()) }
    }

    /// As [`Console::hear`]. There is no interrupt for the next.
    pub(crate) fn hear(&self) -> Result<Option<Change>, Broken> {
        let mut console = self.0.lock();
        console.ignore();
        console.hear()
    }

    /// As [`Console::is_open`].
    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().is_open()
    }

    /// As [`Console::read`].
    pub(crate) fn read(&self, into: &mut [u8]) -> Result<usize, Broken> {
        self.0.lock().read(into)
    }

    /// As [`Console::write`].
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<bool, Broken> {
        self.0.lock().write(bytes)
    }

    /// As [`Console::listen`].
    pub(crate) fn listen(&self, reads: bool) -> bool {
        self.0.lock().listen(reads)
    }
}
