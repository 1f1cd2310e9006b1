//! Circles in a graph of files.

use std::collections::BTreeSet;
use std::path::Path;

/// The circles: the largest sets of two nodes or more, each of which leads to every other. Nodes are numbered from 0.
pub(super) fn find(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); nodes];
    for (from, to) in edges {
        next[from].push(to);
    }
    let reached: Vec<BTreeSet<usize>> = (0..nodes).map(|node| reached(node, &next)).collect();
    let mut circles = Vec::new();
    for node in 0..nodes {
        let circle = reached[node].iter().copied().filter(|other| reached[*other].contains(&node));
        let circle: Vec<usize> = circle.collect();
        // Each circle once, by the first of its nodes.
        if circle.len() > 1 && circle[0] == node {
            circles.push(circle);
        }
    }
    circles
}

/// The nodes that one leads to, directly or by way of others.
fn reached(node: usize, next: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        open.extend(next[node].iter().copied().filter(|next| reached.insert(*next)));
    }
    reached
}

/// Whether the files lie in one folder. `x.rs` counts as a file of the folder `x`.
pub(super) fn in_one_folder(files: &[&Path]) -> bool {
    let lies_in = |file: &Path, folder: &Path| {
        file.parent() == Some(folder) || file.with_extension("") == folder
    };
    let mut folders = files.iter().filter_map(|file| file.parent());
    folders.any(|folder| files.iter().all(|file| lies_in(file, folder)))
}
