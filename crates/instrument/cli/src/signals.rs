//! Signals that tell a run to end: the command first keeps the results and restores what it changed on the host, and
//! then dies of the signal that it got, as its parent expects.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_lab::{Bar, Course};
use mayfly_qemu::{Ignored, die_of};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::conclude::{Conclusion, NOTHING};
use crate::failure::Failure;

/// The signals that ask a process to end.
const ASKING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A signal that comes later than this after the first is from a sender that does not want to wait: `timeout(1)` sends
/// its own twice, to the process and to its group.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Has a file that grows beyond what this process may write be an error of the write, and not this process's death.
///
/// A handler does that and not `SIG_IGN`, since a program that is executed has the signal as it would without this process.
pub(crate) fn outlive_full_files() {
    if !Ignored::here().has(SIGXFSZ) {
        // Where it is refused, the signal does what it always does.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Listens from now on, on a thread of its own, and has another that ends the run. The thread that ends the run, finished
/// or interrupted, holds `conclusion`.
pub(crate) fn listen(
    conclusion: Arc<Mutex<Conclusion>>,
    course: Course,
    bar: Bar,
) -> Result<(), Failure> {
    let refused = |error| Failure::runtime(format_args!("cannot listen to signals: {error}"));
    let ignored = Ignored::here();
    let heard = ASKING.into_iter().filter(|signal| !ignored.has(*signal));
    let mut signals = Signals::new(heard).map_err(refused)?;
    let named = |name: &str| thread::Builder::new().name(name.into());
    // There already when a signal comes: by then there may be no more threads to be had.
    let (tell, told) = channel();
    let (to_end, of_run) = (course.clone(), bar);
    let ender = named("end").spawn(move || {
        if let Ok(signal) = told.recv() {
            end(signal, &conclusion, &to_end, &of_run);
        }
    });
    ender.map_err(refused)?;
    let listening = named("signals").spawn(move || {
        let mut ending = None;
        for signal in &mut signals {
            match ending {
                None => {
                    ending = Some(Instant::now());
                    if tell.send(signal).is_err() {
                        // The thread that was to end the run has panicked: nothing is kept, but the host is restored.
                        course.undo.put_all_back();
                        die_of(signal);
                    }
                }
                Some(since) if since.elapsed() > AT_ONCE => {
                    course.undo.put_all_back();
                    die_of(signal);
                }
                Some(_) => {}
            }
        }
    });
    listening.map(drop).map_err(refused)
}

/// Ends the run, and the process.
fn end(signal: i32, conclusion: &Mutex<Conclusion>, course: &Course, bar: &Bar) -> ! {
    course.undo.put_all_back();
    // If the run is over, this waits until the process ends of itself, or until a second signal comes.
    let conclusion = conclusion.lock().unwrap_or_else(PoisonError::into_inner);
    bar.wipe();
    let outcome = course.outcome();
    if let Err(failure) = conclusion.of_part(&outcome) {
        failure.report();
    }
    die_saying(signal, &outcome.partial().unwrap_or_else(|| NOTHING.to_owned()))
}

/// Ends the process by a signal, and says by which, and what is missing of what was asked for.
pub(crate) fn die_saying(signal: i32, partial: &str) -> ! {
    let name = signal_name(signal).unwrap_or("a signal");
    Failure::runtime(format_args!("ended by {name}: {partial}")).report();
    die_of(signal)
}
