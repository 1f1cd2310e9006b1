//! A guest's non-maskable interrupts: while one is handled, another waits (AMD APM volume 2, 8.2.3).
//!
//! The handler is over when its IRET has been executed. The CPU comes out before that IRET, and the guest is then where it
//! was. So it is over when the guest comes out elsewhere.

/// Those of one vCPU.
#[derive(Debug, Default)]
pub struct Nmi {
    waits: bool,
    handler: Handler,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Handler {
    #[default]
    None,
    Runs,
    /// It is before its IRET, with this RIP and this RSP.
    Returns(u64, u64),
}

impl Nmi {
    /// One has come.
    pub const fn arrive(&mut self) {
        self.waits = true;
    }

    /// Whether none waits, and none is handled.
    pub fn is_quiet(&self) -> bool {
        !self.waits && self.handler == Handler::None
    }

    /// Whether the guest can take one now.
    pub fn can_be_taken(&self) -> bool {
        self.waits && self.handler == Handler::None
    }

    /// It takes it.
    pub const fn take(&mut self) {
        (self.waits, self.handler) = (false, Handler::Runs);
    }

    /// It has not come to the handler after all: what it has taken waits again.
    pub const fn put_back(&mut self) {
        (self.waits, self.handler) = (true, Handler::None);
    }

    /// Whether it has to come out before it executes IRET.
    pub fn wants_iret(&self) -> bool {
        self.handler == Handler::Runs
    }

    /// It has come out before an IRET.
    pub fn iret(&mut self, rip: u64, rsp: u64) {
        if self.handler == Handler::Runs {
            self.handler = Handler::Returns(rip, rsp);
        }
    }

    /// It has come out, for anything.
    pub fn came_out(&mut self, rip: u64, rsp: u64) {
        if matches!(self.handler, Handler::Returns(..))
            && self.handler != Handler::Returns(rip, rsp)
        {
            self.handler = Handler::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_taken_behind_the_iret_and_not_before_it() {
        let mut nmi = Nmi::default();
        assert!(nmi.is_quiet() && !nmi.can_be_taken() && !nmi.wants_iret());
        nmi.arrive();
        assert!(nmi.can_be_taken() && !nmi.is_quiet());
        nmi.take();
        nmi.arrive();
        assert!(!nmi.can_be_taken() && nmi.wants_iret());
        // Until its IRET, the handler may come out anywhere.
        nmi.came_out(0x5000, 0x900);
        assert!(!nmi.can_be_taken());
        nmi.came_out(0x1000, 0x800);
        nmi.iret(0x1000, 0x800);
        assert!(!nmi.can_be_taken() && !nmi.wants_iret());
        // An interrupt of the machine's, before the IRET was executed.
        nmi.came_out(0x1000, 0x800);
        assert!(!nmi.can_be_taken());
        nmi.came_out(0x2000, 0x828);
        assert!(nmi.can_be_taken());
        nmi.take();
        nmi.iret(0x1000, 0x800);
        // It may return to another IRET, on another stack.
        nmi.came_out(0x1000, 0x828);
        assert!(nmi.is_quiet());
    }

    #[test]
    fn one_that_was_displaced_is_taken_again() {
        let mut nmi = Nmi::default();
        nmi.arrive();
        nmi.take();
        nmi.put_back();
        assert!(nmi.can_be_taken() && !nmi.wants_iret());
    }
}
