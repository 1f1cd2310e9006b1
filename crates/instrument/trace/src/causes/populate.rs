//! Memory is populated page by page before anybody needs it, where it is mapped, advised, locked, or given to KVM.

use mayfly_record::units::bytes;

use super::evidence::{Stretch, ran, told};
use super::likely::likely;
use crate::life::MEMORY;
use crate::record::{Call, Cause, Trace};

/// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` (linux/mman.h).
const POPULATE: [u64; 2] = [22, 23];
const PINS: [&str; 5] = [
    "faultin_page",
    "__get_user_pages",
    "populate_vma_page_range",
    "pin_user_pages*",
    "handle_mm_fault",
];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let how = match call.name.as_str() {
        "mmap" if call.argument("flags") & libc::MAP_POPULATE as u64 != 0 => "MAP_POPULATE",
        "madvise" if POPULATE.contains(&call.argument("advice")) => "MADV_POPULATE",
        name if MEMORY.contains(&name) => {
            &*format!("seen in {}", Stretch::of(trace, call).seen_in(&PINS)?)
        }
        _ => return None,
    };
    let length = call.argument("length").max(call.argument("size"));
    let mut evidence = vec![format!("{} at once: {how}", bytes(length))];
    evidence.extend(ran(call).map(told));
    let remedy = "leave the memory to the guest's faults, use huge pages, or populate on several threads while other set-up goes on";
    Some(likely("populated-memory", "memory is populated in the caller", remedy, evidence))
}
