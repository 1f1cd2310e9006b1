//! Which share is furthest above its guarantee, of all but the hypervisor's own: a tree of the shares, each of whose nodes
//! has the one of its two children that is further above.
//!
//! Of `n` shares, node `i` has the children `2 i` and `2 i + 1`; from `n` on, node `n + i` is share `i`. So the nodes
//! are in the table of the shares, node `i` with share `i`, and node 1 is the root.

use super::{ShareId, ShareInfo};

/// The share that is furthest above its guarantee; if none is above, any.
pub(super) fn furthest(shares: &[ShareInfo]) -> ShareId {
    shares.get(1).map_or(ShareId::SYSTEM, |root| root.furthest)
}

/// Has the nodes above a share be right again: how far it is above its guarantee has changed.
pub(super) fn settle(shares: &mut [ShareInfo], id: ShareId) {
    let mut node = shares.len().midpoint(id.index());
    while node > 0 {
        let [one, other] = [2 * node, 2 * node + 1].map(|child| at(shares, child));
        let is_further = above(shares, one) > above(shares, other);
        let furthest = if is_further { one } else { other };
        let before = core::mem::replace(&mut shares[node].furthest, furthest);
        // Then no node above this one has it, or had it.
        if before != id && furthest != id {
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

fn above(shares: &[ShareInfo], id: ShareId) -> u64 {
    if id == ShareId::SYSTEM { 0 } else { shares[id.index()].above() }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_one_at_the_root_is_as_far_above_as_any(
            count in 1_usize..100,
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..20, 0_u64..20), 0..200),
        ) {
            let mut shares = vec![ShareInfo::ABSENT; count];
            for (index, used, guarantee) in changes {
                let index = index.index(count);
                (shares[index].used, shares[index].guarantee) = (used, guarantee);
                if index != 0 {
                    settle(&mut shares, ShareId(index as u16));
                }
                let most = shares[1..].iter().map(ShareInfo::above).max().unwrap_or(0);
                prop_assert_eq!(above(&shares, furthest(&shares)), most);
            }
        }
    }
}
