//! What comes to a vCPU beside interrupts with vectors: NMI, INIT, start-up, and vectors that there are not. One word,
//! and its transitions, which are pure; `crate::mailbox` applies each by one compare-exchange.
//!
//! INIT takes back what came before it and has not been taken: an NMI, and a start-up. A start-up that comes behind it
//! waits until the vCPU has taken the INIT. Of several start-ups the first counts: the vCPU runs from there on, and to a
//! running vCPU a start-up is nothing (Intel SDM volume 3, 9.4.1; AMD APM volume 2, 16.5).

/// What a vCPU has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is initialised: registers as after INIT, not as after reset (FP state, caches and `IA32_APIC_BASE` stay). Its
    /// local APIC is so already. A vCPU that is not the boot processor then waits for its start-up.
    Init,
    /// It starts in real mode, at this vector times 4096: `CS` has this times 256 as its selector.
    Startup(u8),
    /// A non-maskable interrupt. The embedder holds it until the guest takes NMIs; there is no second one behind it.
    Nmi,
}

const NMI: u32 = 1 << 0;
const INIT: u32 = 1 << 1;
const STARTUP: u32 = 1 << 2;
/// A message with a vector below 16 has come.
const ILLEGAL: u32 = 1 << 3;
const VECTOR: u32 = 8;

/// All that has come and was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events(pub(crate) u32);

impl Events {
    pub(crate) const NONE: Self = Self(0);

    /// `event` comes.
    pub(crate) const fn with(self, event: Event) -> Self {
        match event {
            Event::Nmi => Self(self.0 | NMI),
            Event::Init => Self(self.0 & ILLEGAL | INIT),
            Event::Startup(_) if self.0 & STARTUP != 0 => self,
            Event::Startup(vector) => Self(self.0 | STARTUP | (vector as u32) << VECTOR),
        }
    }

    /// A vector comes that there is not.
    pub(crate) const fn with_illegal(self) -> Self {
        Self(self.0 | ILLEGAL)
    }

    /// What the vCPU does next, and what is left then. One that `waits` for its start-up takes no NMI; one that does not
    /// is started by nothing.
    pub(crate) const fn take(self, waits: bool) -> (Self, Option<Event>) {
        if self.0 & INIT != 0 {
            return (Self(self.0 & !INIT), Some(Event::Init));
        }
        if self.0 & STARTUP != 0 {
            let rest = Self(self.0 & (NMI | ILLEGAL));
            if waits {
                return (rest, Some(Event::Startup((self.0 >> VECTOR) as u8)));
            }
            return rest.take(waits);
        }
        if self.0 & NMI != 0 && !waits {
            return (Self(self.0 & !NMI), Some(Event::Nmi));
        }
        (self, None)
    }

    /// Whether it can have come to this.
    pub(crate) const fn is_valid(self) -> bool {
        let vector = if self.0 & STARTUP == 0 { 0 } else { 0xff << VECTOR };
        self.0 & !(NMI | INIT | STARTUP | ILLEGAL | vector) == 0
    }

    pub(crate) const fn is_illegal(self) -> bool {
        self.0 & ILLEGAL != 0
    }

    pub(crate) const fn without_illegal(self) -> Self {
        Self(self.0 & !ILLEGAL)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// A vCPU that does at once what comes, as hardware does: the word is what it has not got to.
    #[derive(Clone, Default)]
    struct Naive {
        came: Vec<Event>,
    }

    impl Naive {
        /// What was sent, in its order, is replayed from the last INIT on.
        fn next(&self, waits: bool) -> Option<Event> {
            let from = self.came.iter().rposition(|event| *event == Event::Init);
            if from.is_some() {
                return Some(Event::Init);
            }
            let start = self.came.iter().find(|event| matches!(event, Event::Startup(_)));
            if waits {
                return start.copied();
            }
            self.came.contains(&Event::Nmi).then_some(Event::Nmi)
        }

        fn take(&mut self, waits: bool) -> Option<Event> {
            let next = self.next(waits)?;
            match next {
                Event::Init => {
                    let at = self.came.iter().rposition(|event| *event == Event::Init);
                    self.came.drain(..=at.unwrap());
                }
                Event::Startup(_) => {
                    self.came.retain(|event| *event == Event::Nmi);
                }
                Event::Nmi => self.came.clear(),
            }
            Some(next)
        }
    }

    const COMES: [Event; 4] = [Event::Nmi, Event::Init, Event::Startup(0x12), Event::Startup(0x34)];

    /// All sequences of up to six steps: something comes, or the vCPU takes what is next.
    fn each(events: Events, naive: &Naive, waits: bool, left: u32, count: &mut usize) {
        *count += 1;
        if left == 0 {
            return;
        }
        for event in COMES {
            let mut came = naive.clone();
            came.came.push(event);
            each(events.with(event), &came, waits, left - 1, count);
        }
        let mut rest = naive.clone();
        let (next, taken) = events.take(waits);
        assert_eq!(taken, rest.take(waits), "{:?}", naive.came);
        let waits = match taken {
            Some(Event::Init) => true,
            Some(Event::Startup(_)) => false,
            _ => waits,
        };
        each(next, &rest, waits, left - 1, count);
    }

    #[test]
    fn what_comes_in_any_order_is_taken_as_if_it_were_taken_at_once() {
        for waits in [false, true] {
            let mut count = 0;
            each(Events::NONE, &Naive::default(), waits, 6, &mut count);
            assert_eq!(count, (5_usize.pow(7) - 1) / 4);
        }
    }

    #[test]
    fn an_illegal_vector_is_kept_until_it_is_looked_at_whatever_comes() {
        for event in COMES {
            let events = Events::NONE.with_illegal().with(event);
            let (rest, taken) = events.take(true);
            assert!(events.is_illegal() && rest.is_illegal(), "{event:?}");
            assert_eq!(taken.is_some(), event != Event::Nmi);
            assert!(!rest.without_illegal().is_illegal());
        }
    }
}
