//! Attributes: which of them mark test code, and which name paths.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether an item with these attributes is built for tests alone.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            attribute.parse_args::<Meta>().is_ok_and(|meta| without_tests(&meta) == Some(false))
        } else {
            path.segments.last().is_some_and(|last| last.ident == "test" || last.ident == "bench")
        }
    })
}

/// What a `cfg` predicate says where `test` is not set. `None` where that depends on other conditions.
fn without_tests(meta: &Meta) -> Option<bool> {
    let inner = |list: &syn::MetaList| -> Vec<Option<bool>> {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .map(|metas| metas.iter().map(without_tests).collect())
            .unwrap_or_default()
    };
    match meta {
        Meta::Path(path) if path.is_ident("test") => Some(false),
        Meta::List(list) if list.path.is_ident("not") => {
            inner(list).first().copied().flatten().map(|known| !known)
        }
        Meta::List(list) if list.path.is_ident("all") => {
            inner(list).contains(&Some(false)).then_some(false)
        }
        Meta::List(list) if list.path.is_ident("any") => {
            let of = inner(list);
            if of.contains(&Some(true)) {
                Some(true)
            } else {
                of.iter().all(|one| *one == Some(false)).then_some(false)
            }
        }
        _ => None,
    }
}

/// The value of `#[path = "..."]`.
pub(super) fn path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
        match &attribute.meta {
            Meta::NameValue(pair) => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        }
    })
}

/// Whether an attribute with this name is there.
pub(super) fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// Whether the attribute's words are neither code nor names of code of ours.
pub(super) fn is_inert(attribute: &Attribute) -> bool {
    const INERT: [&str; 10] = [
        "doc",
        "cfg",
        "cfg_attr",
        "derive",
        "allow",
        "expect",
        "warn",
        "deny",
        "path",
        "deprecated",
    ];
    INERT.iter().any(|name| attribute.path().is_ident(name))
}
