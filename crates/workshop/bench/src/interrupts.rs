//! Function-call interrupts of a processor: another processor asked it to run a function, as `membarrier(2)` does.

use std::fs;
use std::io;

use crate::guest::Guest;

/// How often [`taken_by`] looks.
const LOOKS: usize = 201;

/// How many function-call interrupts `processor` takes while `act` does its thing `count` times and `guest` is seen to
/// run there: the median of [`LOOKS`] times, for somebody else may have the processor, or interrupt it.
///
/// # Errors
///
/// As [`function_calls`].
pub fn taken_by(guest: &Guest, processor: usize, act: &dyn Fn(u32), count: u32) -> io::Result<u64> {
    let mut taken = [0; LOOKS];
    for taken in &mut taken {
        guest.see_it_run();
        let before = function_calls(processor)?;
        act(count);
        *taken = function_calls(processor)? - before;
    }
    taken.sort_unstable();
    Ok(taken[LOOKS / 2])
}

/// How many function-call interrupts `processor` has taken since the host was started, of all that runs on it.
///
/// # Errors
///
/// Where `/proc/interrupts` cannot be read, or does not say: [`io::ErrorKind::Unsupported`].
pub fn function_calls(processor: usize) -> io::Result<u64> {
    let table = fs::read_to_string("/proc/interrupts")?;
    count(&table, processor).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "/proc/interrupts has no function-call interrupts",
        )
    })
}

/// The first line names the processors that are online, each further one has a count for each of them, and then what
/// was counted.
fn count(table: &str, processor: usize) -> Option<u64> {
    let mut lines = table.lines();
    let name = format!("CPU{processor}");
    let column = lines.next()?.split_whitespace().position(|column| column == name)?;
    let line = lines.find(|line| line.to_lowercase().contains("function call interrupts"))?;
    line.split_whitespace().nth(1 + column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU2\n  4:     1     0  IO-APIC  4-edge  ttyS0\n\
                         CAL:     474214     413456   Function call interrupts\n\
                         TLB:   7   8   TLB shootdowns\n";

    #[test]
    fn a_processors_count_is_in_the_column_of_its_name() {
        assert_eq!([0, 1, 2].map(|cpu| count(TABLE, cpu)), [Some(474_214), None, Some(413_456)]);
    }

    #[test]
    fn where_none_are_counted_there_is_no_count() {
        assert_eq!(count("  CPU0\nTLB: 7 TLB shootdowns\n", 0), None);
    }
}
