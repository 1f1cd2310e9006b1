//! A table, a VM a line.

use std::borrow::Cow;

use textwrap::{Options, wrap};

use crate::counters::Exits;
use crate::row::{Row, Sight, Wait};

/// Reasons that are named; what is left is told together.
const REASONS: usize = 3;
/// Waits that are shown of a VM.
const WAITS: usize = 3;

/// Where what belongs to a VM stands, below it.
const INDENT: &str = "            ";

/// The table, no wider than `width`.
pub fn text(sight: &Sight, width: usize) -> String {
    let mut lines = Vec::new();
    if sight.rows.is_empty() {
        lines.push("no VM was found".to_owned());
    } else {
        lines.push(format!(
            "{:>7} {:>3} {:<15} {:>5} {:<7} {:>4} {:>8}  {}",
            "PID", "VM", "PROGRAM", "VCPUS", "STATE", "BUSY", "EXITS/S", "REASONS"
        ));
    }
    // Many VMs lack the same.
    let mut missing: Vec<(&str, usize)> = Vec::new();
    for row in &sight.rows {
        lines.push(of_row(row, sight.took.as_secs_f64()));
        for wait in row.waits.iter().take(WAITS) {
            let wrapping = Options::new(width).initial_indent(INDENT).subsequent_indent(INDENT);
            let sentence = of_wait(wait, sight.looks);
            lines.extend(wrap(&sentence, wrapping).into_iter().map(Cow::into_owned));
        }
        if row.waits.len() > WAITS {
            lines.push(format!("{INDENT}and {} more calls that waited", row.waits.len() - WAITS));
        }
        if let Some(why) = &row.missing {
            match missing.iter_mut().find(|(known, _)| known == why) {
                Some((_, count)) => *count += 1,
                None => missing.push((why, 1)),
            }
        }
    }
    let of_vms = missing.into_iter().map(|(why, count)| match count {
        1 => format!("exits of 1 VM: {why}"),
        _ => format!("exits of {count} VMs: {why}"),
    });
    for sentence in of_vms.chain(sight.missing.iter().cloned()) {
        lines.extend(wrap(&sentence, width).into_iter().map(Cow::into_owned));
    }
    lines.iter().map(|line| cut(line.trim_end(), width).to_owned() + "\n").collect()
}

fn of_row(row: &Row, seconds: f64) -> String {
    let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
    let rate = row.recent.as_ref().map(|recent| format!("{:.0}", recent.all as f64 / seconds));
    format!(
        "{:>7} {:>3} {:<15} {:>5} {:<7} {:>4} {:>8}  {}",
        row.pid,
        row.vm,
        row.program,
        or_none(row.vcpus.map(|vcpus| vcpus.to_string())),
        row.state,
        or_none(row.busy.map(|busy| format!("{busy}%"))),
        or_none(rate),
        row.recent.as_ref().map(reasons).unwrap_or_default()
    )
}

/// The most frequent first, each with its share.
fn reasons(exits: &Exits) -> String {
    let mut all: Vec<(&str, u64)> = exits.by_reason.iter().map(|(name, n)| (*name, *n)).collect();
    all.push(("other", exits.other()));
    all.retain(|(_, count)| *count > 0);
    all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let shown = all.iter().take(REASONS).map(|(name, count)| {
        format!("{name} {:.0}%", *count as f64 * 100.0 / exits.all.max(1) as f64)
    });
    shown.collect::<Vec<_>>().join(", ")
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
        for part in ["4194303", "qemu-system-x86", "37%", " 500  io 60%, halt 30%, other"] {
            assert!(lines[1].contains(part), "{part}: {shown}");
        }
        assert!(
            lines[2].contains("KVM_SET_USER_MEMORY_REGION: in 3 of 90 looks, 24.0 ms"),
            "{shown}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
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
            shown.ends_with("\nexits of 1 VM: no debugfs: reading it requires root\n"),
            "{shown}"
        );
        assert_eq!(text(&sight(vec![]), 80), "no VM was found\n");
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        assert_eq!((cut("äöü", 2), cut("äöü", 3), cut("", 5)), ("äö", "äöü", ""));
    }
}
