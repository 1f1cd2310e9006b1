//! The program touches memory for the first time, and the kernel gives it page by page.

use mayfly_record::units::{duration, percent};

use super::likely::likely;
use crate::path::Held;
use crate::record::{Cause, Trace};

pub(super) fn find(_: &Trace, held: &Held<'_>) -> Option<Cause> {
    let touched = held.touched?;
    let took = held.took.max(1);
    let evidence = vec![
        format!(
            "{} page faults in {} of its own code, in which it made no call",
            touched.faults,
            duration(took)
        ),
        format!("it was in the kernel for {} of it", percent(touched.system as f64 / took as f64)),
    ];
    let remedy = "use huge pages, touch memory on several threads while KVM is set up, or leave it to the guest's faults";
    let what = "memory is touched for the first time, and the kernel gives it page by page";
    Some(likely("first-touch", what, remedy, evidence))
}
