//! The desk and the ends of VMs under loom: who has asked for the end of a VM is told of it before the answer, and everybody is
//! told of all ends, once, in the order of each thread's.

#![cfg(mayfly_loom)]

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::{Arc, Mutex};
use loom::thread;

use mayfly_desk::{Desk, Endings, Event, Name, Next};

const LINE: usize = 8;

struct World {
    desk: Mutex<Desk<u32, LINE>>,
    endings: Endings,
    /// Whether the VM that is asked for has stopped: its state is under a lock.
    has_stopped: Mutex<bool>,
}

impl World {
    fn new(events: usize) -> Arc<Self> {
        let desk = Mutex::new(Desk::try_new(events).unwrap());
        Arc::new(Self { desk, endings: Endings::default(), has_stopped: Mutex::new(false) })
    }

    /// The thread of the run of the VM that is asked for.
    fn ends(&self, name: &str) {
        let stop = || *self.has_stopped.lock().unwrap() = true;
        self.endings.end(stop, || self.happens(name));
    }

    fn happens(&self, name: &str) {
        self.desk.lock().unwrap().event(Event::Ended(Name::new(name)));
    }

    /// The monitor: it has asked for the end, and answers when that is over. It looks once: what it finds at any later look,
    /// it finds at the first in another execution.
    fn answers(&self) {
        let has_stopped = *self.has_stopped.lock().unwrap();
        if has_stopped && self.endings.are_told() {
            assert!(self.desk.lock().unwrap().answer(b"done", None).is_none());
        }
    }

    /// The console says what comes next, if there is something.
    fn says(&self, said: &mut Vec<Next<u32>>) {
        said.extend(self.desk.lock().unwrap().next(true, &mut [0; LINE]));
    }
}

fn ended(name: &str) -> Next<u32> {
    Next::Event(Event::Ended(Name::new(name)))
}

/// One VM has ended by itself, and another one is asked to end. Gives what the console says in all, by some looks meanwhile,
/// and at the end.
fn play(events: usize, check: impl Fn(&[Next<u32>]) + Sync + Send + 'static) {
    let answers = std::sync::Arc::new(AtomicUsize::new(0));
    let answered = answers.clone();
    loom::model(move || {
        let world = World::new(events);
        world.happens("other");
        let (asked, monitor) = (world.clone(), world.clone());
        let threads =
            [thread::spawn(move || asked.ends("asked")), thread::spawn(move || monitor.answers())];
        let mut said = Vec::new();
        (0..3).for_each(|_| world.says(&mut said));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        (0..3).for_each(|_| world.says(&mut said));
        check(&said);
        answers.fetch_add(usize::from(said.len() == 3), Ordering::Relaxed);
    });
    assert_ne!(answered.load(Ordering::Relaxed), 0, "no execution has an answer");
}

#[test]
fn an_end_is_told_before_the_answer_to_who_has_asked_for_it() {
    play(2, |said| match said {
        [other, asked, rest @ ..] => {
            assert_eq!((other, asked), (&ended("other"), &ended("asked")));
            assert!(matches!(rest, [] | [Next::Answer(4, None)]), "{rest:?}");
        }
        _ => panic!("{said:?}"),
    });
}

#[test]
fn an_end_for_which_there_is_no_room_is_counted_before_the_answer() {
    play(1, |said| match said {
        [other, asked, rest @ ..] => {
            assert_eq!(other, &ended("other"));
            assert!([ended("asked"), Next::Event(Event::Lost(1))].contains(asked), "{asked:?}");
            assert!(matches!(rest, [] | [Next::Answer(4, None)]), "{rest:?}");
        }
        _ => panic!("{said:?}"),
    });
}
