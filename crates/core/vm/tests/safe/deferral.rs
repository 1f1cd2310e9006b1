//! Sections, values that readers find, and what is deferred until they are done with them; in a domain of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use mayfly_vm::srcu::{
    Callback, Config, OwnedAnonymousGuard, OwnedReadGuard, Polled, RcuBox, RcuOption, Retired, Srcu,
};
use mayfly_vm::testing::Machine;

use crate::host::{pick, returns};
use crate::step::{Fate, fate};

const ALIVE: u64 = 0x11fe;

/// A value that says when it is gone.
struct Canary(AtomicU64);

impl Drop for Canary {
    fn drop(&mut self) {
        assert_eq!(self.0.swap(0, Ordering::Relaxed), ALIVE, "it was dropped before");
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Defer,
    DeferExpedited,
    TryDefer,
    Call,
    Polled,
    Synchronize,
    Forget,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Takes the pointer apart, which no reader has then, and makes another one.
    Open,
    Publish {
        has_value: bool,
        way: Way,
    },
    Find,
    Lock {
        by_reader: bool,
        fate: Fate,
    },
    Unlock {
        at: usize,
    },
    /// Defers a callback that panics, or calls the domain itself.
    Call {
        panics: bool,
        expedited: bool,
    },
    Poll {
        at: usize,
    },
    Tick,
    Expedite,
    Synchronize,
    /// Asks how far grace periods are.
    Look,
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let way = prop_oneof![
        Just(Way::Defer),
        Just(Way::DeferExpedited),
        Just(Way::TryDefer),
        Just(Way::Call),
        Just(Way::Polled),
        Just(Way::Synchronize),
        Just(Way::Forget),
    ];
    let panics = prop::bool::weighted(0.1);
    prop_oneof![
        6 => (any::<bool>(), way)
            .prop_map(|(has_value, way)| Step::Publish { has_value, way }),
        1 => Just(Step::Open),
        4 => Just(Step::Find),
        3 => (any::<bool>(), fate())
            .prop_map(|(by_reader, fate)| Step::Lock { by_reader, fate }),
        3 => any::<usize>().prop_map(|at| Step::Unlock { at }),
        2 => (panics, any::<bool>())
            .prop_map(|(panics, expedited)| Step::Call { panics, expedited }),
        2 => any::<usize>().prop_map(|at| Step::Poll { at }),
        2 => Just(Step::Tick),
        1 => Just(Step::Expedite),
        1 => Just(Step::Synchronize),
        1 => Just(Step::Look),
    ]
}

enum Guard {
    Anonymous(OwnedAnonymousGuard),
    Reader(OwnedReadGuard),
}

pub(crate) struct Deferral {
    domain: Srcu,
    value: RcuOption<Canary>,
    guards: Vec<Guard>,
    polled: Vec<Polled<Canary>>,
    /// Sections that have not ended, those that were forgotten included: nothing waits for readers meanwhile.
    open: usize,
    /// Whether a callback that is to panic has not run yet. There is one at a time: the process aborts where two of those
    /// that a thread has taken up together panic (docs/srcu.md, *When something panics*).
    has_panicking: Arc<AtomicBool>,
}

impl Deferral {
    pub(crate) fn new(machine: &Machine) -> Self {
        let domain = Srcu::try_new(machine.process().clone(), Config::default()).unwrap();
        let value = RcuOption::new(&domain, None);
        Self {
            domain,
            value,
            guards: Vec::new(),
            polled: Vec::new(),
            open: 0,
            has_panicking: Arc::default(),
        }
    }

    pub(crate) fn make(&mut self, step: Step) {
        match step {
            Step::Publish { has_value, way } => {
                let fresh = || RcuBox::try_new(Canary(AtomicU64::new(ALIVE))).unwrap();
                let old =
                    if has_value { self.value.replace(Some(fresh())) } else { self.value.take() };
                if let Some(old) = old {
                    self.lose(old, way);
                }
            }
            Step::Open => {
                let value = std::mem::replace(&mut self.value, RcuOption::new(&self.domain, None));
                if let Some(canary) = value.into_inner() {
                    assert_eq!(canary.into_inner().0.load(Ordering::Relaxed), ALIVE);
                }
            }
            Step::Find => {
                let section = self.domain.read_lock();
                if let Some(canary) = self.value.load(&section) {
                    assert_eq!(canary.0.load(Ordering::Relaxed), ALIVE, "a reader has it");
                }
            }
            Step::Lock { by_reader, fate } => {
                let guard = if by_reader {
                    let Ok(reader) = self.domain.reader() else { return };
                    drop(reader.lock());
                    Guard::Reader(reader.lock_owned())
                } else {
                    Guard::Anonymous(self.domain.read_lock_owned())
                };
                match fate {
                    Fate::Dropped => drop(guard),
                    Fate::Kept => {
                        self.guards.push(guard);
                        self.open += 1;
                    }
                    Fate::Forgotten => {
                        std::mem::forget(guard);
                        self.open += 1;
                    }
                }
            }
            Step::Unlock { at } => match pick(&mut self.guards, at) {
                Some(Guard::Reader(guard)) => {
                    assert!(!guard.unlock().is_inside());
                    self.open -= 1;
                }
                Some(Guard::Anonymous(guard)) => {
                    drop(guard);
                    self.open -= 1;
                }
                None => {}
            },
            Step::Call { panics, expedited } => self.call(panics, expedited),
            Step::Poll { at } => {
                let Some(polled) = pick(&mut self.polled, at) else { return };
                match polled.try_take() {
                    Ok(canary) => assert_eq!(canary.into_inner().0.load(Ordering::Relaxed), ALIVE),
                    Err(polled) => self.polled.push(polled),
                }
            }
            Step::Tick => drop(returns(|| _ = self.domain.tick())),
            Step::Expedite => drop(returns(|| self.domain.expedite())),
            Step::Synchronize if self.open == 0 => {
                returns(|| self.domain.synchronize());
                returns(|| self.domain.synchronize_expedited());
                returns(|| self.domain.barrier());
                returns(|| self.domain.cond_synchronize(self.domain.cookie()));
            }
            Step::Synchronize => {}
            Step::Look => {
                let cookie = self.domain.start_poll();
                let is_over = self.domain.poll(cookie);
                assert!(!is_over || self.open == 0, "a section that it waits for has not ended");
                assert!(self.domain.is(&self.domain.clone()));
                let _ = (self.domain.stats(), self.domain.is_fenced());
            }
        }
    }

    fn lose(&mut self, mut old: Retired<Canary>, way: Way) {
        old.hold(100);
        match way {
            Way::Defer => drop(returns(|| old.defer())),
            Way::DeferExpedited => drop(returns(|| old.defer_expedited())),
            Way::TryDefer => drop(returns(|| drop(old.try_defer()))),
            Way::Call => drop(returns(|| drop(self.domain.try_call(old.into_callback())))),
            Way::Polled => self.polled.push(old.into_polled()),
            Way::Synchronize if self.open == 0 => {
                returns(|| drop(old.synchronize().into_inner()));
            }
            Way::Synchronize | Way::Forget => std::mem::forget(old),
        }
    }

    /// What a callback may do, it does.
    fn call(&self, panics: bool, expedited: bool) {
        let (domain, ran) = (self.domain.clone(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&ran);
        let panics = panics && !self.has_panicking.swap(true, Ordering::Relaxed);
        let has_panicking = Arc::clone(&self.has_panicking);
        let callback = Callback::try_new(move || {
            assert_eq!(count.fetch_add(1, Ordering::Relaxed), 0, "it was run before");
            domain.tick();
            domain.expedite();
            if let Ok(next) = Callback::try_new(|| ()) {
                drop(domain.try_call(next));
            }
            drop(domain.read_lock());
            if panics {
                has_panicking.store(false, Ordering::Relaxed);
                panic!("as it was told to");
            }
        });
        let Ok(callback) = callback else { return };
        returns(|| {
            if expedited {
                self.domain.call_expedited(callback);
            } else {
                self.domain.call(callback);
            }
        });
        assert!(ran.load(Ordering::Relaxed) <= 1);
    }
}
