//! A device of a VM's that outlives the runs of the VM, and its plug: what it leads to of the present run. There is none before
//! a run, after it, and while a run that has stopped is frozen or reset.
//!
//! **Nothing that was taken is lost.** What comes for the guest is taken if there is a plug, and not otherwise: then
//! it is the caller's still. The plug goes in one step with what is kept of the device, and comes in one step with
//! what it goes on as. So what was taken before is in what is kept, and nothing is taken between.

/// A device, and its plug. The owner has it under a lock. What a method returns to be dropped is dropped without that lock.
#[derive(Debug)]
pub struct Plugged<D, P> {
    device: D,
    plug: Option<P>,
}

impl<D, P> Plugged<D, P> {
    /// A device that leads nowhere.
    pub const fn new(device: D) -> Self {
        Self { device, plug: None }
    }

    /// The device.
    pub const fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// What it leads to.
    pub const fn plug(&self) -> Option<&P> {
        self.plug.as_ref()
    }

    /// It is `device` from now on, and leads to `plug`. Returns what it was.
    pub const fn reset(&mut self, device: D, plug: Option<P>) -> (D, Option<P>) {
        let device = core::mem::replace(&mut self.device, device);
        (device, core::mem::replace(&mut self.plug, plug))
    }

    /// It leads nowhere, until it [goes on](Plugged::go_on) or is reset. Returns what it is and has led to.
    pub fn stop(&mut self) -> (D, Option<P>)
    where
        D: Clone,
    {
        (self.device.clone(), self.plug.take())
    }

    /// It leads to `plug` again. Returns what it has led to.
    pub const fn go_on(&mut self, plug: P) -> Option<P> {
        self.plug.replace(plug)
    }

    /// Gives the guest what has come for it. Returns how much of it was taken: nothing where it leads nowhere.
    pub fn take(&mut self, take: impl FnOnce(&mut D, &P) -> usize) -> usize {
        self.plug.as_ref().map_or(0, |plug| take(&mut self.device, plug))
    }
}

#[cfg(test)]
mod tests {
    use mayfly_devices::pl011::Pl011;

    use super::*;

    fn type_at(port: &mut Plugged<Pl011, ()>, text: &[u8]) -> usize {
        port.take(|uart, ()| uart.receive(text))
    }

    fn received(uart: &mut Pl011) -> std::vec::Vec<u8> {
        let is_empty = |uart: &mut Pl011| uart.read(0x18) & 0x10 != 0;
        core::iter::from_fn(|| (!is_empty(uart)).then(|| uart.read(0) as u8)).collect()
    }

    #[test]
    fn what_is_typed_while_it_leads_nowhere_is_not_taken() {
        let mut uart = Pl011::new();
        // UARTEN, TXE and RXE of UARTCR, and the FIFOs.
        uart.write(0x30, 0x301);
        uart.write(0x2c, 0x70);
        let mut port = Plugged::new(uart.clone());
        assert_eq!(type_at(&mut port, b"before a run"), 0);
        port.reset(uart.clone(), Some(()));
        assert_eq!(type_at(&mut port, b"ab"), 2);
        // It is frozen, or it goes on.
        let (mut frozen, _) = port.stop();
        assert_eq!(type_at(&mut port, b"c"), 0);
        port.go_on(());
        assert_eq!(type_at(&mut port, b"de"), 2);
        assert_eq!(received(&mut frozen), b"ab");
        assert_eq!(received(port.device()), b"abde");
        // It goes back to what it was.
        port.stop();
        assert_eq!(type_at(&mut port, b"f"), 0);
        port.reset(frozen, Some(()));
        assert_eq!(type_at(&mut port, b"g"), 1);
        assert_eq!(received(port.device()), b"g");
        port.reset(uart, None);
        assert_eq!(type_at(&mut port, b"after a run"), 0);
    }
}
