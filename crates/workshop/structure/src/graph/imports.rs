//! The leaves of a `use`: one for each name that it imports, and for each glob.

use syn::UseTree;
use syn::spanned::Spanned;

use super::names::{Written, plain};

/// A name that a `use` imports.
pub(super) struct Leaf {
    pub(super) path: Written,
    pub(super) line: usize,
    pub(super) brings: Brings,
}

/// What a leaf brings into scope.
pub(super) enum Brings {
    Name(String),
    /// `as _`: a trait's methods.
    NoName,
    /// `*`
    All,
}

/// Every leaf of a `use`.
pub(super) fn leaves(item: &syn::ItemUse) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let absolute = item.leading_colon.is_some();
    collect(&item.tree, &mut Written { segments: Vec::new(), absolute }, &mut leaves);
    leaves
}

fn collect(tree: &UseTree, prefix: &mut Written, leaves: &mut Vec<Leaf>) {
    let line = tree.span().start().line;
    match tree {
        UseTree::Path(path) => {
            prefix.segments.push(plain(&path.ident));
            collect(&path.tree, prefix, leaves);
            prefix.segments.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                collect(tree, prefix, leaves);
            }
        }
        UseTree::Glob(_) => leaves.push(Leaf { path: prefix.clone(), line, brings: Brings::All }),
        UseTree::Name(name) => leaves.push(leaf(prefix, &name.ident, None, line)),
        UseTree::Rename(name) => leaves.push(leaf(prefix, &name.ident, Some(&name.rename), line)),
    }
}

/// `prefix::name as alias`; `self` as the name stands for the prefix.
fn leaf(prefix: &Written, name: &syn::Ident, alias: Option<&syn::Ident>, line: usize) -> Leaf {
    let mut path = prefix.clone();
    if name != "self" || path.segments.is_empty() {
        path.segments.push(plain(name));
    }
    let name = alias.map(plain).or_else(|| path.segments.last().cloned());
    let brings = name.filter(|name| name != "_").map_or(Brings::NoName, Brings::Name);
    Leaf { path, line, brings }
}
