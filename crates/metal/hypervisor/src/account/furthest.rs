//! Which share is furthest above its guarantee, of all but the hypervisor's own: a tree of the shares, each of whose nodes
//! has the one of its two children whose *bound* is higher.
//!
//! A share is never further above its guarantee than its bound. When it comes to be, the bound is raised, by some more
//! than that, and the tree is settled. When it comes to be less far above, nothing is done: so those that take and give
//! back, as they mostly do, are not looked at. Where the one at the root is asked for, its bound is lowered to what is
//! so, until one is there for which it is right.
//!
//! Of `n` shares, node `i` has the children `2 i` and `2 i + 1`; from `n` on, node `n + i` is share `i`. So the nodes
//! are in the table of the shares, node `i` with share `i`, and node 1 is the root.

use super::{ShareId, ShareInfo};

/// Bounds are raised to multiples of so many units.
const STEP: u64 = 16;

/// How many bounds are lowered in a row.
const AT_ONCE: usize = 32;

/// A share that has come to be elsewhere above its guarantee.
#[inline]
pub(super) fn note(shares: &mut [ShareInfo], id: ShareId) {
    let share = &mut shares[id.index()];
    let above = share.above();
    if above > share.bound {
        share.bound = above.next_multiple_of(STEP);
        settle(shares, id);
    }
}

/// The share that is furthest above its guarantee; if none is above, any. `None`, if it is to be asked again.
pub(super) fn furthest(shares: &mut [ShareInfo]) -> Option<ShareId> {
    for _ in 0..AT_ONCE {
        let id = shares.get(1)?.furthest;
        let share = &mut shares[id.index()];
        let above = share.above();
        if id == ShareId::SYSTEM || share.bound == above {
            return Some(id);
        }
        share.bound = above;
        settle(shares, id);
    }
    None
}

/// Has the nodes above a share be right again, whose bound has changed.
#[inline(never)]
fn settle(shares: &mut [ShareInfo], id: ShareId) {
    let mut node = shares.len().midpoint(id.index());
    while node > 0 {
        let [one, other] = [2 * node, 2 * node + 1].map(|child| at(shares, child));
        let is_higher = shares[one.index()].bound > shares[other.index()].bound;
        let higher = if is_higher { one } else { other };
        let before = core::mem::replace(&mut shares[node].furthest, higher);
        // Then no node above this one has it, or had it.
        if before != id && higher != id {
            break;
        }
        node /= 2;
    }
}

/// The share that a node has.
fn at(shares: &[ShareInfo], node: usize) -> ShareId {
    match node.checked_sub(shares.len()) {
        Some(index) => ShareId(index as u16),
        None => shares[node].furthest,
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_one_that_is_found_is_as_far_above_as_any(
            count in 2_usize..100,
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), 0_u64..60, 0_u64..60, any::<bool>()), 0..200),
        ) {
            let mut shares = vec![ShareInfo::ABSENT; count];
            for (index, used, guarantee, is_asked) in changes {
                let index = index.index(count - 1) + 1;
                (shares[index].used, shares[index].guarantee) = (used, guarantee);
                note(&mut shares, ShareId(index as u16));
                if is_asked {
                    let asked = (0..=count / AT_ONCE).find_map(|_| furthest(&mut shares));
                    let found = asked.expect("all bounds are lowered by now");
                    let most = shares[1..].iter().map(ShareInfo::above).max().unwrap_or(0);
                    prop_assert_eq!(shares[found.index()].above(), most);
                }
            }
        }
    }
}
