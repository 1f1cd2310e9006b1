//! What the machine's hardware sees, recorded as it happens.
//!
//! An event draws a ticket before its atomic step, and one after it, under the lock that it is handed on under: so records
//! come in the order of their second tickets.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mayfly_hwtrace::{Checker, Event, Family, Options, Record, Violation, steps};
use mayfly_platform::observe::Step;
use mayfly_stage2::{Ept, Format, Npt, Sv39x4, Sv48x4};

use crate::arena::Words;
use crate::lock::lock;

/// Gets the records, one after another, until it breaks off. Called with locks held, and with entries frozen.
pub type Sink = Box<dyn FnMut(&Record) -> ControlFlow<()> + Send>;

/// Draws tickets, and hands records on.
pub struct Recorder {
    tickets: AtomicU64,
    sink: Mutex<Sink>,
    /// The sink has broken off. Set under its lock.
    is_over: AtomicBool,
}

/// A thread's number, which stands for the CPU that the thread runs on; numbers of TLBs come from the same source.
pub(crate) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The present thread's number.
pub(crate) fn cpu() -> u32 {
    thread_local!(static NUMBER: u32 = next_number());
    NUMBER.with(|number| *number)
}

impl Recorder {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { tickets: AtomicU64::new(1), sink: Mutex::new(sink), is_over: AtomicBool::new(false) }
    }

    /// This, as long as the sink wants records. A thread may find out early or late that it does not: after the break,
    /// nothing is handed on in either case.
    pub(crate) fn wanted(&self) -> Option<&Self> {
        (!self.is_over.load(Ordering::Relaxed)).then_some(self)
    }

    /// The first ticket of an event.
    pub(crate) fn begin(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::AcqRel)
    }

    /// It has happened.
    pub(crate) fn end(&self, begin: u64, event: Event) {
        let mut sink = lock(&self.sink);
        if self.wanted().is_none() {
            return;
        }
        let end = self.tickets.fetch_add(1, Ordering::AcqRel);
        if sink(&Record { begin, end, cpu: cpu(), event }).is_break() {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// The core has made `step`.
    pub(crate) fn step(&self, begin: u64, step: &Step, arena: &Words) {
        if let Step::Filled { table } = *step {
            let words: Vec<&AtomicU64> = arena.of(table).collect();
            let entry = |index: usize| words[index].load(Ordering::Relaxed);
            steps::fills(table.get(), words.len(), entry, |event| self.end(begin, event));
        } else if let Some(event) = steps::event(step, family) {
            self.end(begin, event);
        }
    }

    /// It happens.
    pub(crate) fn note(&self, event: Event) {
        self.end(self.begin(), event);
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("tickets", &self.tickets).finish_non_exhaustive()
    }
}

/// The family of the format of that name.
fn family(format: &str) -> Family {
    match format {
        name if name == Ept::NAME => Family::Ept,
        name if name == Npt::NAME => Family::Npt,
        name if name == Sv39x4::NAME || name == Sv48x4::NAME => Family::RiscV,
        name if name.contains("FWB") => Family::ArmFwb,
        _ => Family::Arm,
    }
}

/// Checks what a machine's hardware sees while it sees it, and writes it down where `MAYFLY_HWTRACE` names a file.
#[derive(Debug)]
pub struct Checked(Arc<Mutex<Checking>>);

#[derive(Debug)]
struct Checking {
    checker: Checker,
    line: u64,
    /// The line to break off behind.
    last: u64,
    file: Option<std::io::BufWriter<std::fs::File>>,
}

impl Checked {
    /// A checker, and what hands records to it.
    ///
    /// # Panics
    ///
    /// If the file that `MAYFLY_HWTRACE` names cannot be written.
    pub fn new(options: Options) -> (Self, Sink) {
        Self::up_to(u64::MAX, options)
    }

    /// As [`Checked::new`], of so many events, with which the trace breaks off: what happens from then on takes no time
    /// for that.
    ///
    /// # Panics
    ///
    /// As [`Checked::new`].
    pub fn up_to(events: u64, options: Options) -> (Self, Sink) {
        let file = std::env::var_os("MAYFLY_HWTRACE").map(|path| {
            let file = std::fs::File::create(path).expect("the file of MAYFLY_HWTRACE");
            let mut file = std::io::BufWriter::new(file);
            writeln!(file, "{options}").expect("the trace is written");
            file
        });
        let checking = Checking {
            checker: Checker::new(options),
            line: 1,
            last: events.saturating_add(1),
            file,
        };
        let shared = Arc::new(Mutex::new(checking));
        let sink = Arc::clone(&shared);
        let sink: Sink = Box::new(move |record| {
            let mut checking = lock(&sink);
            if checking.line == checking.last {
                return ControlFlow::Break(());
            }
            checking.line += 1;
            if let Some(file) = &mut checking.file {
                writeln!(file, "{record}").expect("the trace is written");
            }
            let line = checking.line;
            checking.checker.take(line, record);
            ControlFlow::Continue(())
        });
        (Self(shared), sink)
    }

    /// How many events there were, of those that are checked.
    pub fn events(&self) -> u64 {
        lock(&self.0).line - 1
    }

    /// The rules that were broken; to be asked when what is recorded is over. Of a trace that has broken off those that
    /// are certain by then: what seems wrong with the last events may be explained by one that comes late.
    pub fn finish(self) -> Vec<Violation> {
        let mut checking = lock(&self.0);
        checking.file = None;
        let has_broken_off = checking.line == checking.last;
        let checker = std::mem::take(&mut checking.checker);
        if has_broken_off { checker.found() } else { checker.finish() }
    }
}
