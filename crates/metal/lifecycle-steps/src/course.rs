//! The course of the lifecycles, and what of it both sides do alike.

use crate::guest::{self, Order};
use crate::large::{Large, Mapping};
use crate::{Architecture, Course, Line, Row, Spent, Until, times};

/// A side on which lifecycles run: Mayfly, or KVM.
pub trait Side {
    /// Why a lifecycle failed.
    type Error;

    /// Measures an empty step.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn nothing(&mut self) -> Result<(), Self::Error>;

    /// Memory for a guest: made, and given back.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn memory(&mut self, mapping: Mapping) -> Result<(), Self::Error>;

    /// A small VM: everything that a vCPU does, and the short steps.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn small(&mut self) -> Result<(), Self::Error>;

    /// A VM with a slot of its own for the pages that its guest writes to.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn large(&mut self, large: Large) -> Result<(), Self::Error>;

    /// A VM whose vCPUs turn their caches on.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn cached(&mut self) -> Result<(), Self::Error>;

    /// A VM of two vCPUs that take interrupts, on one processor.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn interrupted(&mut self) -> Result<(), Self::Error>;

    /// VMs in which something follows at once after a device was registered.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn at_once(&mut self) -> Result<(), Self::Error>;

    /// A VM whose dirty log is started, harvested and stopped.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn logged(&mut self, mapping: Mapping) -> Result<(), Self::Error>;

    /// A VM that is frozen, and the [lives](crate::forked::Life) of its forks.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn forks(&mut self) -> Result<(), Self::Error>;

    /// A round of `course`. Of a dirty log's, an empty step follows each VM, as in [`Side::round`].
    ///
    /// # Errors
    ///
    /// That of the first lifecycle that failed.
    fn round_of(&mut self, course: Course) -> Result<(), Self::Error> {
        match course {
            Course::Lives => self.round(),
            Course::DirtyLog => Mapping::ALL.into_iter().try_for_each(|mapping| {
                self.logged(mapping)?;
                self.nothing()
            }),
            Course::Fork => self.forks(),
        }
    }

    /// Each lifecycle once, and the small one several times.
    ///
    /// An empty step follows a lifecycle that has deferred something less than a second before, as the other steps do:
    /// for that long, Mayfly's SRCU worker wakes every 10 ms, and it does so in all of them.
    ///
    /// # Errors
    ///
    /// That of the first lifecycle that failed.
    fn round(&mut self) -> Result<(), Self::Error> {
        for _ in 0..times::SMALL_LIVES {
            self.nothing()?;
            self.small()?;
        }
        let here = Architecture::HERE;
        self.interrupted()?;
        if Row::MemslotAtOnce.is_on(here) {
            self.at_once()?;
        }
        for mapping in Mapping::ALL {
            self.memory(mapping)?;
        }
        for large in Large::all(here) {
            self.large(large)?;
        }
        if Row::CachesOn.is_on(here) { self.cached() } else { Ok(()) }
    }
}

/// Counts what happens between two moments.
pub trait Counter {
    /// A moment: what the counters show.
    type Moment;
    /// Why a side cannot go on.
    type Error;

    /// The present moment.
    ///
    /// # Errors
    ///
    /// When the counters cannot be read.
    fn now(&self) -> Result<Self::Moment, Self::Error>;

    /// What happened between two moments.
    fn between(earlier: &Self::Moment, later: &Self::Moment) -> Spent;

    /// Sleeps, so that other threads have the processor.
    fn settle(&self);

    /// Keeps a sample, or prints it.
    fn keep(&mut self, line: Line);

    /// Ends a step that began at `begun` twice: now, when the caller has control back, and after a wait for the work
    /// that was left to other threads.
    ///
    /// # Errors
    ///
    /// When the counters cannot be read.
    fn done(&mut self, row: Row, times: u32, begun: &Self::Moment) -> Result<(), Self::Error> {
        let caller = self.now()?;
        self.settle();
        let all = self.now()?;
        for (until, moment) in [(Until::Caller, caller), (Until::All, all)] {
            self.keep(Line { row, until, times, spent: Self::between(begun, &moment) });
        }
        Ok(())
    }

    /// Measures `work` as one step. Returns what it returns.
    ///
    /// # Errors
    ///
    /// That of `work`, or when the counters cannot be read.
    fn step<T>(
        &mut self,
        row: Row,
        work: impl FnOnce() -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error> {
        let begun = self.now()?;
        let made = work()?;
        self.done(row, 1, &begun)?;
        Ok(made)
    }
}

/// A vCPU that runs the guest's program.
pub trait Vcpu {
    /// Why it failed.
    type Error;

    /// Gives it this [answer](guest::answer), for which it has asked, and runs it until it asks again.
    ///
    /// # Errors
    ///
    /// When it leaves the guest for another reason.
    fn obey_answer(&mut self, answer: u64) -> Result<(), Self::Error>;

    /// As [`Vcpu::obey_answer`], of an order.
    ///
    /// # Errors
    ///
    /// As there.
    fn obey(&mut self, order: Order, times: u32) -> Result<(), Self::Error> {
        self.obey_answer(guest::answer(order, times))
    }
}

/// Measures everything that the vCPU of a small VM does.
///
/// # Errors
///
/// Those of the vCPU and the counter.
pub fn small<E>(
    vcpu: &mut impl Vcpu<Error = E>,
    counter: &mut impl Counter<Error = E>,
) -> Result<(), E> {
    let (calls, reads) = match Architecture::HERE {
        Architecture::Arm64 => (Row::Hvc, Row::MmioGic),
        Architecture::X86 => (Row::Cpuid, Row::MmioIoapic),
    };
    let steps = [
        (Row::MmioUser, Order::Ask, 1),
        (Row::FirstFault, Order::Pages, 1),
        (calls, Order::Calls, times::TIMES),
        (Row::MmioDoorbell, Order::Rings, times::TIMES),
        (reads, Order::Reads, times::TIMES),
    ];
    in_turn(vcpu, counter, steps)
}

/// Measures the interrupts of the first of two vCPUs. The second one runs on a thread of its own, with
/// [`answer_interrupts`].
///
/// # Errors
///
/// Those of the vCPU and the counter.
pub fn interrupts<E>(
    vcpu: &mut impl Vcpu<Error = E>,
    counter: &mut impl Counter<Error = E>,
) -> Result<(), E> {
    vcpu.obey(Order::Interrupts, 1)?;
    // So that the other vCPU is waiting by then.
    counter.settle();
    let sleeps = match Architecture::HERE {
        Architecture::Arm64 => Row::WfiTimer,
        Architecture::X86 => Row::HltTimer,
    };
    let steps = [
        (Row::TimerInterrupt, Order::Timers, times::TIMES),
        (sleeps, Order::Sleeps, times::TIMES),
        (Row::Ipi, Order::Sends, times::TIMES),
    ];
    in_turn(vcpu, counter, steps)
}

/// Has the second of two vCPUs answer the interrupts of [`interrupts`].
///
/// # Errors
///
/// Those of the vCPU.
pub fn answer_interrupts<E>(vcpu: &mut impl Vcpu<Error = E>) -> Result<(), E> {
    vcpu.obey(Order::Interrupts, 1)?;
    vcpu.obey(Order::Answers, times::TIMES)
}

/// Measures the first writes of the vCPU of a large VM.
///
/// # Errors
///
/// Those of the vCPU and the counter.
pub fn touches<E>(
    large: Large,
    vcpu: &mut impl Vcpu<Error = E>,
    counter: &mut impl Counter<Error = E>,
) -> Result<(), E> {
    if large.is_cached {
        vcpu.obey(Order::Caches, 1)?;
    }
    let (row, order, touches) = large.touches();
    ordered(vcpu, counter, row, order, touches)
}

/// Measures the exit by which a guest asks, of a vCPU whose other steps do not.
///
/// # Errors
///
/// Those of the vCPU and the counter.
pub fn asked<E>(
    vcpu: &mut impl Vcpu<Error = E>,
    counter: &mut impl Counter<Error = E>,
) -> Result<(), E> {
    in_turn(vcpu, counter, [(Row::MmioUser, Order::Ask, 1)])
}

/// Measures orders, each so many times, one after the other.
fn in_turn<E>(
    vcpu: &mut impl Vcpu<Error = E>,
    counter: &mut impl Counter<Error = E>,
    steps: impl IntoIterator<Item = (Row, Order, u32)>,
) -> Result<(), E> {
    for (row, order, times) in steps {
        // So that its registers are in the processor, as they are between two exits.
        vcpu.obey(Order::Ask, 0)?;
        ordered(vcpu, counter, row, order, times)?;
    }
    Ok(())
}

/// Has the guest do what it is told, so many times, and counts that.
pub(crate) fn ordered<E>(
    vcpu: &mut impl Vcpu<Error = E>,
    counter: &mut impl Counter<Error = E>,
    row: Row,
    order: Order,
    times: u32,
) -> Result<(), E> {
    let begun = counter.now()?;
    vcpu.obey(order, times)?;
    counter.done(row, times, &begun)
}
