//! Items: their attributes, and the name that each defines.

use syn::{Attribute, Ident, Item};

use super::names::{Namespaces, PATHS, TYPES, VALUES};

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names that an item defines where it stands. Modules and macros have rules of their own, and are not among them.
pub(super) fn defined(item: &Item) -> Vec<(&Ident, Namespaces)> {
    match item {
        Item::Const(item) => vec![(&item.ident, VALUES)],
        Item::Enum(item) => vec![(&item.ident, TYPES)],
        Item::Fn(item) => vec![(&item.sig.ident, VALUES)],
        Item::ForeignMod(block) => block.items.iter().filter_map(foreign).collect(),
        Item::Static(item) => vec![(&item.ident, VALUES)],
        Item::Struct(item) => vec![(&item.ident, PATHS)],
        Item::Trait(item) => vec![(&item.ident, TYPES)],
        Item::TraitAlias(item) => vec![(&item.ident, TYPES)],
        Item::Type(item) => vec![(&item.ident, TYPES)],
        Item::Union(item) => vec![(&item.ident, TYPES)],
        _ => Vec::new(),
    }
}

fn foreign(item: &syn::ForeignItem) -> Option<(&Ident, Namespaces)> {
    match item {
        syn::ForeignItem::Fn(item) => Some((&item.sig.ident, VALUES)),
        syn::ForeignItem::Static(item) => Some((&item.ident, VALUES)),
        syn::ForeignItem::Type(item) => Some((&item.ident, TYPES)),
        _ => None,
    }
}

/// The variants that an item brings into scope where it is imported by a glob.
pub(super) fn variants(item: &Item) -> Vec<String> {
    match item {
        Item::Enum(item) => {
            item.variants.iter().map(|variant| super::names::plain(&variant.ident)).collect()
        }
        _ => Vec::new(),
    }
}
