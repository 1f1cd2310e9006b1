//! A VM is created in a process that has many mappings: KVM registers an MMU notifier, and locks each of them.
//!
//! To register a notifier takes the locks of all mappings of its process (`mm_take_all_locks` of `mm/vma.c`). On one host, that
//! took 2.3 to 3.6 ms with 10,000 mappings, and 29 to 34 ms with 60,000.

use super::evidence::{Stretch, own, ran, told};
use super::likely::likely;
use crate::record::{Call, Cause, Trace};

/// With fewer it takes no time to speak of.
const MANY: u64 = 2000;
/// To lock one takes no longer, in nanoseconds: what does is something else.
const LONGEST: u64 = 2000;

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let mappings = call.argument("mappings");
    let own = own(call);
    if call.name != "KVM_CREATE_VM" || mappings < MANY || own > mappings * LONGEST {
        return None;
    }
    let ran = ran(call).filter(|ran| *ran >= 0.5)?;
    // They are counted after the call: by events some milliseconds later.
    let mut evidence =
        vec![format!("the process had {mappings} mappings when they were counted"), told(ran)];
    let seen = Stretch::of(trace, call).seen_in(&["mm_take_all_locks", "mm_drop_all_locks"]);
    evidence.extend(seen.map(|function| format!("it was seen in {function}")));
    let what = "KVM locks every mapping of the process";
    let remedy = "create the VM before the program maps much, or in a process of its own, or map in larger pieces";
    Some(likely("many-mappings", what, remedy, evidence))
}
