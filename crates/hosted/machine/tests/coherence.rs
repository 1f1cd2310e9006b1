//! What guests rely on when they turn their caches on and off, under caches that do the worst they may.

use mayfly_machine::address_space::Backing;
use mayfly_machine::scenario::{Maintained, Played, Rule, Scenario, Tracked};
use mayfly_vm::{CacheOp, Caches};

const BACKINGS: [Backing; 2] = [Backing::Pages, Backing::HugePages];

/// All that is mapped, at each switch: what KVM does.
struct Everything;

impl Rule for Everything {
    fn caches(&self) -> Caches {
        Caches::Reported
    }

    fn switched(&self, vm: &dyn Maintained, _: u32, _: CacheOp) {
        vm.clean_invalidate_mapped();
    }
}

/// Nothing, ever.
struct Nothing;

impl Rule for Nothing {
    fn caches(&self) -> Caches {
        Caches::Reported
    }

    fn switched(&self, _: &dyn Maintained, _: u32, _: CacheOp) {}
}

fn play(rule: &dyn Rule) -> impl Iterator<Item = (&'static str, Backing, Played)> {
    Scenario::all().flat_map(move |scenario| {
        BACKINGS.map(|backing| (scenario.name, backing, scenario.play(rule, backing).unwrap()))
    })
}

/// Every stale read, a line each.
fn stale(rule: &dyn Rule) -> Vec<String> {
    let told = |(name, backing, played): (&'static str, Backing, Played)| {
        assert!(played.reads > 0, "{name} reads nothing");
        let line = move |stale| format!("{name} reads stale on {backing:?}: {stale}");
        played.stale.into_iter().map(line)
    };
    play(rule).flat_map(told).collect()
}

#[test]
fn guests_find_what_they_rely_on() {
    let stale = stale(&Tracked);
    assert!(stale.is_empty(), "\n{}", stale.join("\n"));
}

#[test]
fn they_do_as_well_where_everything_is_flushed_at_every_switch() {
    let stale = stale(&Everything);
    assert!(stale.is_empty(), "\n{}", stale.join("\n"));
}

#[test]
fn where_nothing_is_flushed_every_scenario_that_could_tell_does() {
    let mut coherent: Vec<_> = play(&Nothing)
        .filter(|(_, _, played)| played.stale.is_empty())
        .map(|(name, ..)| name)
        .collect();
    coherent.dedup();
    // The one is about what a processor does, the other about a page as it is mapped.
    assert_eq!(coherent, ["fwb", "read-beside-clean"]);
}

#[test]
fn what_a_guest_has_not_written_is_not_flushed() {
    for (name, backing, played) in play(&Tracked) {
        let everything = 4 * 512 * 64;
        assert!(played.lines.flushed <= 6 * 64, "{name} on {backing:?}: {:?}", played.lines);
        assert!(played.lines.cleaned <= 3 * everything, "{name} on {backing:?}");
        if name == "fwb" {
            assert_eq!((played.lines.flushed, played.lines.cleaned), (0, 0));
        }
    }
}
