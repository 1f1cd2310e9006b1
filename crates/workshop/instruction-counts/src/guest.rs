//! A guest whose exits are made up: each entry returns the next exit.

use mayfly_vm::memslot::{Gfn, Gpa};
use mayfly_vm::stage2::Format;
use mayfly_vm::{Access, Event, Guest, Requests, Translation};

use crate::step;

/// Comes out with one event, whose handling, up to the next entry, is counted; and then with [`Event::Halt`].
pub(crate) struct Script {
    event: Option<Event>,
    counting: bool,
    data: [u8; 4],
}

impl Script {
    pub(crate) fn new(event: Event) -> Self {
        Self { event: Some(event), counting: false, data: [0; 4] }
    }

    /// A write that an entry does not allow.
    pub(crate) fn denied_write(gpa: u64) -> Self {
        Self::new(Event::Access(Access { denied: true, ..Access::data(Gpa::new(gpa), 4, true) }))
    }

    /// An access of four bytes.
    pub(crate) fn access(gpa: u64, write: bool) -> Self {
        Self::new(Event::Access(Access::data(Gpa::new(gpa), 4, write)))
    }
}

impl<F: Format> Guest<F> for Script {
    #[unsafe(link_section = ".text.outside.guest")]
    #[inline(never)]
    fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
        // SAFETY: no guest is entered.
        let _ = core::hint::black_box(unsafe { translation.load() });
        if self.counting {
            step::end();
        }
        match self.event.take() {
            None => Event::Halt,
            Some(event) => {
                self.counting = true;
                step::begin();
                event
            }
        }
    }

    #[unsafe(link_section = ".text.outside.guest")]
    #[inline(never)]
    fn forget(&mut self, _gfn: Gfn) {}

    #[unsafe(link_section = ".text.outside.guest")]
    #[inline(never)]
    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }

    #[unsafe(link_section = ".text.outside.guest")]
    #[inline(never)]
    fn answered(&mut self) {}
}
