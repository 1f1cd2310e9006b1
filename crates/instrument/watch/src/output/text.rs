//! A table, a VM a line.

use std::borrow::Cow;

use textwrap::{Options, wrap};

use crate::counters::Exits;
use crate::row::{Row, Sight, Wait};

/// Reasons that are named; what is left is told together.
const REASONS: usize = 3;
/// Waits that are shown of a VM.
const WAITS: usize = 3;

/// Of processes that lack the same, as many are named.
const NAMED: usize = 6;
/// Columns of a name: what is longer loses its beginning, for names of one host mostly differ at the end.
const NARROWEST: usize = 15;
const WIDEST: usize = 24;

/// The table, no wider than `width`.
pub fn text(sight: &Sight, width: usize) -> String {
    let mut lines = Vec::new();
    let longest = sight.rows.iter().map(|row| called(row).chars().count()).max().unwrap_or(0);
    let column = longest.clamp(NARROWEST, WIDEST);
    if sight.rows.is_empty() {
        lines.push("no VM was found".to_owned());
    } else {
        lines.push(format!(
            "{:>7} {:>3} {:<column$} {:>5} {:<7} {:>4} {:>8}  {}",
            "PID", "VM", "NAME", "VCPUS", "STATE", "BUSY", "EXITS/S", "REASONS"
        ));
    }
    // Many VMs lack the same.
    let mut missing: Vec<(&str, Vec<i32>)> = Vec::new();
    for row in &sight.rows {
        lines.push(of_row(row, sight.took.as_secs_f64(), column, width));
        // A line that is looked for and found alone says whose it is.
        let whose = format!("{}   ", vm(row));
        for wait in row.waits.iter().take(WAITS) {
            let wrapping = Options::new(width).initial_indent(&whose).subsequent_indent(&whose);
            let sentence = of_wait(wait, sight.looks);
            lines.extend(wrap(&sentence, wrapping).into_iter().map(Cow::into_owned));
        }
        if row.waits.len() > WAITS {
            lines.push(format!("{whose}and {} more calls that waited", row.waits.len() - WAITS));
        }
        if let Some(why) = &row.missing {
            match missing.iter_mut().find(|(known, _)| known == why) {
                Some((_, pids)) => pids.push(row.pid),
                None => missing.push((why, vec![row.pid])),
            }
        }
    }
    let of_vms = missing.into_iter().map(|(why, pids)| match pids.len() {
        1 => format!("exits of 1 VM ({}): {why}", listed(pids)),
        count => format!("exits of {count} VMs ({}): {why}", listed(pids)),
    });
    for sentence in of_vms.chain(sight.missing.iter().cloned()) {
        lines.extend(wrap(&sentence, width).into_iter().map(Cow::into_owned));
    }
    lines.iter().map(|line| cut(line.trim_end(), width).to_owned() + "\n").collect()
}

/// Processes, each once. There is one row for each VM, by process.
fn listed(mut pids: Vec<i32>) -> String {
    pids.dedup();
    let named: Vec<String> = pids.iter().take(NAMED).map(i32::to_string).collect();
    let more = if pids.len() > NAMED { ", ..." } else { "" };
    named.join(", ") + more
}

/// What a VM is told by: its process, and the descriptor.
fn vm(row: &Row) -> String {
    format!("{:>7} {:>3}", row.pid, row.vm)
}

/// What a VM is called. One without a name is called by its program.
fn called(row: &Row) -> &str {
    row.name.as_deref().unwrap_or(&row.program)
}

/// The end of a name, as much of it as there is room for.
fn end_of(name: &str, column: usize) -> String {
    let more = name.chars().count().saturating_sub(column);
    if more == 0 {
        name.to_owned()
    } else {
        format!("..{}", name.chars().skip(more + 2).collect::<String>())
    }
}

fn of_row(row: &Row, seconds: f64, column: usize, width: usize) -> String {
    let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
    let rate = row.recent.as_ref().map(|recent| format!("{:.0}", recent.all as f64 / seconds));
    let before = format!(
        "{} {:<column$} {:>5} {:<7} {:>4} {:>8}  ",
        vm(row),
        end_of(called(row), column),
        or_none(row.vcpus.map(|vcpus| vcpus.to_string())),
        row.state,
        or_none(row.busy.map(|busy| format!("{busy}%"))),
        or_none(rate),
    );
    let room = width.saturating_sub(before.chars().count());
    before + &row.recent.as_ref().map(|recent| reasons(recent, room)).unwrap_or_default()
}

/// The most frequent first, each with its share, as far as there is room for it.
fn reasons(exits: &Exits, room: usize) -> String {
    let mut all: Vec<(&str, u64)> = exits.by_reason.iter().map(|(name, n)| (*name, *n)).collect();
    all.push(("other", exits.other()));
    all.retain(|(_, count)| *count > 0);
    all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let shown = all.iter().take(REASONS).map(|(name, count)| {
        format!("{name} {:.0}%", *count as f64 * 100.0 / exits.all.max(1) as f64)
    });
    let longer = |before: String, next: String| {
        let longer = if before.is_empty() { next } else { format!("{before}, {next}") };
        if longer.len() <= room { Ok(longer) } else { Err(before) }
    };
    shown.into_iter().try_fold(String::new(), longer).unwrap_or_else(|fits| fits)
}

fn of_wait(wait: &Wait, looks: u32) -> String {
    let at_least = match wait.at_least.as_micros() {
        0 => String::new(),
        us => format!(", {:.1} ms or more", us as f64 / 1000.0),
    };
    let function = wait.function.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("waits in {}: in {} of {looks} looks{at_least}{function}", wait.call, wait.looks)
}

fn cut(line: &str, width: usize) -> &str {
    line.char_indices().nth(width).map_or(line, |(end, _)| &line[..end])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::row::State;

    fn row() -> Row {
        let exits = Exits { all: 500, by_reason: [("io", 300), ("halt", 150)].into() };
        Row {
            pid: 4_194_303,
            vm: 12,
            program: "qemu-system-x86".to_owned(),
            name: None,
            vcpus: Some(4),
            state: State::Runs,
            busy: Some(37),
            recent: Some(Exits { all: 1000, by_reason: [("io", 600), ("halt", 300)].into() }),
            exits: Some(exits),
            source: Some("debugfs"),
            waits: vec![Wait {
                call: "KVM_SET_USER_MEMORY_REGION".to_owned(),
                function: Some("synchronize_srcu".to_owned()),
                looks: 3,
                at_least: Duration::from_millis(24),
            }],
            missing: None,
        }
    }

    fn sight(rows: Vec<Row>) -> Sight {
        let took = Duration::from_secs(2);
        Sight { at: SystemTime::UNIX_EPOCH, took, looks: 90, rows, missing: vec![] }
    }

    #[test]
    fn a_vm_is_a_line_and_what_it_waited_in_stands_below() {
        let shown = text(&sight(vec![row()]), 80);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4);
        for part in ["4194303", "qemu-system-x86", "37%", " 500  io 60%, halt 30%"] {
            assert!(lines[1].contains(part), "{part}: {shown}");
        }
        assert!(
            lines[2].contains("KVM_SET_USER_MEMORY_REGION: in 3 of 90 looks, 24.0 ms"),
            "{shown}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
    }

    #[test]
    fn every_line_about_a_vm_has_its_process_however_narrow() {
        let shown = text(&sight(vec![row()]), 40);
        let lines: Vec<&str> = shown.lines().skip(1).collect();
        assert!(lines.len() > 3, "{shown}");
        assert!(lines.iter().all(|line| line.starts_with("4194303  12 ")), "{shown}");
    }

    #[test]
    fn a_vm_with_a_name_is_called_so_and_of_a_long_one_the_end_is_shown() {
        let named = |name: &str| Row { name: Some(name.to_owned()), waits: vec![], ..row() };
        let rows = vec![named("web-1"), named("/run/machines/ä/of-one-host/7.sock"), row()];
        let shown = text(&sight(rows), 80);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].starts_with("4194303  12 web-1                        4 runs"), "{shown}");
        assert!(lines[2].starts_with("4194303  12 ..s/ä/of-one-host/7.sock     4"), "{shown}");
        assert!(lines[3].contains(" qemu-system-x86 "), "{shown}");
        // A share that is cut would be read as a smaller one.
        assert!(lines[1].ends_with("  io 60%"), "{shown}");
        assert_eq!(lines[0].find("VCPUS"), lines[1].find("    4 runs"), "{shown}");
    }

    #[test]
    fn processes_whose_vms_lack_the_same_are_named_once_and_not_all() {
        let rows = (1..=9).flat_map(|pid| {
            let missing = Some("nothing".to_owned());
            let row = Row { pid, missing, waits: vec![], ..row() };
            [row.clone(), row]
        });
        let shown = text(&sight(rows.collect()), 80);
        let last = shown.lines().last().unwrap();
        assert_eq!(last, "exits of 18 VMs (1, 2, 3, 4, 5, 6, ...): nothing");
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_says_why() {
        let mut row = row();
        (row.recent, row.exits, row.busy, row.vcpus) = (None, None, None, None);
        row.waits.clear();
        row.missing = Some("no debugfs: reading it requires root".to_owned());
        let shown = text(&sight(vec![row]), 80);
        assert!(shown.contains(" - runs       -        -\n"), "{shown}");
        assert!(
            shown.ends_with("\nexits of 1 VM (4194303): no debugfs: reading it requires root\n"),
            "{shown}"
        );
        assert_eq!(text(&sight(vec![]), 80), "no VM was found\n");
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        assert_eq!((cut("äöü", 2), cut("äöü", 3), cut("", 5)), ("äö", "äöü", ""));
    }
}
