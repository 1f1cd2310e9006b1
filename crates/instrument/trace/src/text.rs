//! A trace as text: one line a phase with its share, and the longest waits with what is known of them.

use std::fmt;

use mayfly_record::units::{duration, percent, things};

use crate::meanwhile::Meanwhile;
use crate::path::{CriticalPath, Piece};
use crate::record::{Call, Cause, End, From, Phase, Stall, Stops, Trace, Verdict};

/// Shows a trace.
pub struct Text<'a>(pub &'a Trace);

/// What is quoted of a command is no longer, in characters.
const COMMAND: usize = 72;
/// A smaller part of a critical path has no line.
const LEAST_SHARE: f64 = 0.005;

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = self.0;
        let ended = match trace.end {
            Some(End::Code(code)) => format!("ended with {code}"),
            Some(End::Signal(signal)) => format!("was ended by signal {signal}"),
            None => "goes on".to_owned(),
        };
        writeln!(f, "{}: {ended} after {}", command(&trace.command), duration(trace.span))?;
        writeln!(f, "recorded by {}{}", trace.recorder, cost(trace.stops))?;
        if let Some(why) = trace.incomplete() {
            writeln!(f, "incomplete: {why}; phases, waits and causes may be missing or wrong")?;
        }
        for note in &trace.notes {
            writeln!(f, "note: {}", plain(note))?;
        }
        if trace.is_of_a_running_vm() {
            write!(f, "\n{}", Meanwhile(trace))?;
            if trace.stop().is_some() {
                writeln!(f)?;
                phases(f, &trace.phases, trace.span)?;
                totals(f, None, None, trace.stop())?;
                self.paths(f, &trace.critical_paths)?;
            }
            return self.stalls(f);
        }
        if !trace.calls.iter().any(Call::is_kvm) {
            return writeln!(f, "{}", no_kvm(trace));
        }
        writeln!(f)?;
        if trace.lives.is_empty() {
            phases(f, &trace.phases, trace.span)?;
            totals(f, trace.from.as_ref(), trace.start(), trace.stop())?;
            self.paths(f, &trace.critical_paths)?;
        }
        for (number, life) in trace.lives.iter().enumerate() {
            let gap = if number == 0 { "" } else { "\n" };
            let (took, at) = (duration(life.took), duration(life.at));
            writeln!(f, "{gap}VM {} of process {}: {took}, from {at} on", life.vm, life.pid)?;
            phases(f, &life.phases, life.took)?;
            totals(f, None, Some(life.start), life.stop)?;
            self.paths(f, &life.critical_paths)?;
        }
        self.stalls(f)
    }
}

impl Text<'_> {
    fn paths(&self, f: &mut fmt::Formatter<'_>, paths: &[CriticalPath]) -> fmt::Result {
        let names = self.0.thread_names();
        let name = |piece: &Piece| self.0.thread_number(piece.tid, piece.at).map(|one| &names[one]);
        for path in paths {
            writeln!(f, "\n{}", path.title())?;
            for piece in &path.pieces {
                let share = piece.took as f64 / path.took.max(1) as f64;
                if share < LEAST_SHARE {
                    continue;
                }
                let share = percent(share);
                let unknown = format!("thread {}", piece.tid);
                let name = name(piece).unwrap_or(&unknown);
                writeln!(
                    f,
                    "  {:>9}  {share:>5}  {name}: {}",
                    duration(piece.took),
                    plain(&piece.to_string())
                )?;
            }
        }
        Ok(())
    }

    fn stalls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.stalls.is_empty() {
            return writeln!(f, "\nno wait of half a tick or more");
        }
        writeln!(f, "\nthe longest waits:")?;
        for stall in &self.0.stalls {
            writeln!(f, "  {}", line(stall))?;
            match &stall.cause {
                None => {
                    writeln!(f, "    unexplained: {}", spent(self.0, stall))?;
                    if !stall.known.is_empty() {
                        writeln!(f, "    known: {}", plain(&stall.known.join("; ")))?;
                    }
                }
                Some(Cause { code, what, remedy, evidence, verdict, gain }) => {
                    let verdict = match verdict {
                        Verdict::Likely => "likely",
                        Verdict::Proved => "proved",
                    };
                    writeln!(f, "    {verdict}: {what} ({code})")?;
                    writeln!(f, "    because {}", plain(&evidence.join("; ")))?;
                    writeln!(f, "    remedy: {remedy}")?;
                    if let Some(gain) = gain {
                        writeln!(f, "    {}", plain(&gain.to_string()))?;
                    }
                }
            }
        }
        self.0
            .replay
            .as_ref()
            .map_or(Ok(()), |replay| writeln!(f, "{}", plain(&replay.to_string())))
    }
}

/// A line a phase, with its share of `whole`.
fn phases(f: &mut fmt::Formatter<'_>, phases: &[Phase], whole: u64) -> fmt::Result {
    let head = ("until", "took", "share", "at", "calls of this kind");
    writeln!(f, "{:<20} {:>9}  {:>5}  {:>9}  {}", head.0, head.1, head.2, head.3, head.4)?;
    for phase in phases {
        let share = phase.took as f64 / whole.max(1) as f64;
        let took = duration(phase.took);
        let at = duration(phase.at);
        write!(f, "{:<20} {took:>9}  {:>5}  {at:>9}", phase.name, percent(share))?;
        match phase.calls {
            0 => writeln!(f)?,
            1 => writeln!(f, "  1 call, {}", duration(phase.in_calls))?,
            calls => writeln!(f, "  {calls} calls, {}", duration(phase.in_calls))?,
        }
    }
    Ok(())
}

fn totals(
    f: &mut fmt::Formatter<'_>,
    from: Option<&From>,
    start: Option<u64>,
    stop: Option<u64>,
) -> fmt::Result {
    let total =
        |name: &str, time: Option<u64>| time.map(|time| format!("{name} {}", duration(time)));
    let named = from.map(|from| format!("start (request, by {from}, to first entry)"));
    let start = total(named.as_deref().unwrap_or("start (exec to first entry)"), start);
    let stop = total("stop (last exit to process gone)", stop);
    let totals: Vec<String> = start.into_iter().chain(stop).collect();
    if totals.is_empty() { Ok(()) } else { writeln!(f, "{}", totals.join(", ")) }
}

/// What is known of the time of a wait whose cause is not: on a processor, runnable, or asleep, where that was seen.
fn spent(trace: &Trace, stall: &Stall) -> String {
    let calls = trace.calls.iter().filter(|call| call.name == stall.what);
    let call = stall.nth.and_then(|nth| calls.into_iter().nth(nth));
    let of_call = call.and_then(|call| call.used).map(|used| (used.ran, used.queued));
    let of_thread = || {
        let spent = trace.spent(stall.tid, stall.at, stall.at + stall.took)?;
        (spent.unseen == 0).then_some((spent.ran, spent.queued))
    };
    let Some((ran, queued)) = of_call.or_else(of_thread) else { return duration(stall.took) };
    let slept = stall.took.saturating_sub(ran + queued);
    format!(
        "ran {}, waited {} for a processor, slept {}",
        duration(ran),
        duration(queued),
        duration(slept)
    )
}

fn line(stall: &Stall) -> String {
    let ticks = stall.ticks.map_or_else(String::new, |ticks| format!(" ({ticks:.1} ticks)"));
    let (took, at) = (duration(stall.took), duration(stall.at));
    format!("{took}{ticks}  {}, thread {}, at {at}", stall.what, stall.tid)
}

/// What a program that made no call to KVM is told.
fn no_kvm(trace: &Trace) -> String {
    let opened = trace.calls.iter().find(|call| call.name == "open");
    match opened.map(|call| call.result) {
        None => "the program never opened /dev/kvm: there is nothing to report".to_owned(),
        Some(Some(error @ ..0)) => {
            let error = std::io::Error::from_raw_os_error(i32::try_from(-error).unwrap_or(0));
            format!("the program could not open /dev/kvm: {error}")
        }
        Some(_) => "the program opened /dev/kvm and made no call on it".to_owned(),
    }
}

fn cost(Stops { count, handling }: Stops) -> String {
    match handling.checked_div(count) {
        None => ", which does not stop the program".to_owned(),
        Some(each) => format!(
            ", which stopped the program {}; the recorder took {} for each stop",
            things(count, "time"),
            duration(each)
        ),
    }
}

fn command(arguments: &[String]) -> String {
    let whole = plain(&arguments.join(" "));
    if whole.chars().count() <= COMMAND {
        return whole;
    }
    whole.chars().take(COMMAND - 3).chain("...".chars()).collect()
}

/// What comes from a program's name or arguments does not drive the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Used;

    #[test]
    fn a_program_that_has_nothing_to_do_with_kvm_is_told_so() {
        let mut trace =
            Trace { command: vec!["true".into()], end: Some(End::Code(0)), ..Trace::default() };
        assert!(Text(&trace).to_string().contains("the program never opened /dev/kvm"));
        let open = |result| Call { name: "open".into(), result: Some(result), ..Call::default() };
        trace.calls = vec![open(-i64::from(libc::EACCES))];
        assert!(Text(&trace).to_string().contains("could not open /dev/kvm: Permission denied"));
        trace.calls = vec![open(3)];
        assert!(Text(&trace).to_string().contains("made no call on it"));
    }

    #[test]
    fn a_wait_without_evidence_is_called_unexplained() {
        let phase = Phase { name: "memory".into(), at: 50, took: 50, calls: 2, in_calls: 40 };
        let stall = Stall {
            what: "KVM_SET_USER_MEMORY_REGION".into(),
            took: 3_100_000,
            ..Stall::default()
        };
        let kvm = Call { name: "KVM_CREATE_VM".into(), ..Call::default() };
        let trace = Trace {
            span: 100,
            phases: vec![phase],
            stalls: vec![stall],
            calls: vec![kvm],
            ..Trace::default()
        };
        let text = Text(&trace).to_string();
        assert!(text.contains("unexplained: 3.10 ms"), "{text}");
        let (mut seen, used) = (trace.clone(), Some(Used { ran: 100_000, queued: 1_000_000 }));
        let slot =
            || Call { name: "KVM_SET_USER_MEMORY_REGION".into(), used: None, ..Call::default() };
        seen.calls.extend([slot(), Call { used, ..slot() }]);
        seen.stalls[0].nth = Some(1);
        let text = Text(&seen).to_string();
        let spent = "unexplained: ran 100 us, waited 1.00 ms for a processor, slept 2.00 ms";
        assert!(text.contains(spent) && !text.contains("known:"), "{text}");
        seen.stalls[0].known = vec!["on /a\u{1b}b".into(), "it slept in f".into()];
        assert!(Text(&seen).to_string().contains("\n    known: on /a?b; it slept in f\n"));
        assert!(text.contains("50%") && text.contains("2 calls, 40 ns"), "{text}");
    }

    #[test]
    fn a_record_that_lost_something_is_called_incomplete_and_others_are_not() {
        let told = |lost_events, lost| {
            let trace = Trace { lost, lost_events, ..Trace::default() };
            let text = Text(&trace).to_string();
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("incomplete: "));
            lines.next().and_then(|line| line.split_once(';')).map(|(why, _)| why.to_owned())
        };
        assert_eq!(told(0, 0), None);
        assert_eq!(told(3, 0).as_deref(), Some("3 events were lost"));
        assert_eq!(told(0, 4).as_deref(), Some("4 calls were dropped"));
        let both = "3 events were lost, and 4 calls were dropped";
        assert_eq!(told(3, 4).as_deref(), Some(both));
    }

    #[test]
    fn a_command_does_not_drive_the_terminal_and_is_no_longer_than_a_line() {
        let trace = Trace { command: vec!["a\u{1b}[2J".repeat(40)], ..Trace::default() };
        let text = Text(&trace).to_string();
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().next().unwrap().chars().count() < 130, "{text}");
    }
}
