//! Trees of tables: against a naive map in every format, out of memory, under threads, and to their end.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

#[path = "../common/mod.rs"]
mod common;

/// Tests of rules that are generic in the format, in those that differ in when they ask for break-before-make.
macro_rules! in_formats {
    ($($rule:ident)*) => {
        $(
            mod $rule {
                use mayfly_stage2::{Arm, Ept, Npt, Sv39x4};

                #[test]
                fn arm() {
                    super::$rule::<Arm<40>>();
                }

                #[test]
                fn ept() {
                    super::$rule::<Ept>();
                }

                #[test]
                fn npt() {
                    super::$rule::<Npt>();
                }

                #[test]
                fn sv39x4() {
                    super::$rule::<Sv39x4>();
                }
            }
        )*
    };
}

mod announced;
mod at_once;
mod buried;
mod grant;
mod heap;
mod hold;
mod in_place;
mod marked;
mod model;
mod observed;
mod out_of_memory;
mod overlap;
mod owed;
mod panics;
mod picked;
mod prune;
mod random;
mod reclaim;
mod refusal;
mod replace;
mod retiring;
mod split;
mod strides;
mod threads;
mod too_wide;
mod written;

use std::time::Duration;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Leaf, Permissions, Slice};

/// A slice that lasts as long as its entries: what is counted must not depend on how busy the host is.
const UNHURRIED: Slice = Slice { entries: 1 << 16, time: Duration::MAX };

/// One of so many entries.
fn entries(entries: u32) -> Slice {
    Slice { entries, ..UNHURRIED }
}

const READ: Permissions = Permissions::READ;
const READ_WRITE: Permissions = Permissions::READ.union(Permissions::WRITE);

fn leaf(pfn: u64, permissions: Permissions) -> Leaf {
    Leaf::new(Pfn::new(pfn), permissions)
}

fn gfns(range: std::ops::Range<u64>) -> std::ops::Range<Gfn> {
    Gfn::new(range.start)..Gfn::new(range.end)
}
