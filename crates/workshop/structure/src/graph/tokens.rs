//! The body of a macro's invocation or definition: read as Rust where it is Rust, else searched for paths.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Block, Expr, Pat, Stmt, Token};

use super::names::Written;

/// What the body of a macro's invocation was read as.
pub(super) enum Body {
    /// As in `assert_eq!(a, b)`, `vec![a; b]`, `write!(to, "…", a)`.
    Expressions(Vec<Expr>),
    /// As in `matches!(a, b | c if d)`.
    Match(Box<Matches>),
    /// As in a macro that takes a block.
    Statements(Vec<Stmt>),
    /// Anything else.
    Tokens(Vec<Found>),
}

pub(super) struct Matches {
    pub(super) value: Expr,
    pub(super) pattern: Pat,
    pub(super) guard: Option<Expr>,
}

impl Parse for Matches {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let value = input.parse()?;
        input.parse::<Token![,]>()?;
        let pattern = Pat::parse_multi_with_leading_vert(input)?;
        let guard = match input.parse::<Option<Token![if]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        input.parse::<Option<Token![,]>>()?;
        Ok(Matches { value, pattern, guard })
    }
}

/// A path among tokens.
pub(super) struct Found {
    pub(super) path: Written,
    pub(super) line: usize,
    /// Whether `!` follows.
    pub(super) is_macro: bool,
}

/// Reads the body of an invocation.
pub(super) fn read(tokens: &TokenStream) -> Body {
    let list = Punctuated::<Expr, Token![,]>::parse_terminated;
    let repeat = Punctuated::<Expr, Token![;]>::parse_separated_nonempty;
    if let Ok(list) = list.parse2(tokens.clone()) {
        Body::Expressions(list.into_iter().collect())
    } else if let Ok(two) = repeat.parse2(tokens.clone()) {
        Body::Expressions(two.into_iter().collect())
    } else if let Ok(matches) = syn::parse2(tokens.clone()) {
        Body::Match(Box::new(matches))
    } else if let Ok(statements) = Block::parse_within.parse2(tokens.clone()) {
        Body::Statements(statements)
    } else {
        Body::Tokens(paths(tokens))
    }
}

/// The paths in tokens: each with `::` in it, and each single word that is called or begins with a capital.
pub(super) fn paths(tokens: &TokenStream) -> Vec<Found> {
    let mut found = Vec::new();
    collect(tokens, &mut found);
    found
}

fn collect(tokens: &TokenStream, found: &mut Vec<Found>) {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Group(group) => collect(&group.stream(), found),
            TokenTree::Ident(first) if !after(&trees, at, '.') => {
                let crates = *first == "crate";
                // `$x` is a macro's parameter, whatever stands in its place; `$crate` is a path's beginning.
                if after(&trees, at, '$') && !crates {
                    at += 1;
                    continue;
                }
                let absolute = at >= 2 && is_separator(&trees, at - 2);
                let line = first.span().start().line;
                let mut segments = vec![first.to_string()];
                while is_separator(&trees, at + 1)
                    && let Some(TokenTree::Ident(next)) = trees.get(at + 3)
                {
                    segments.push(next.to_string());
                    at += 3;
                }
                let is_macro = is(&trees, at + 1, '!') && !is(&trees, at + 2, '=');
                let called = matches!(trees.get(at + 1), Some(TokenTree::Group(group))
                    if group.delimiter() == Delimiter::Parenthesis);
                let capital = segments[0].starts_with(char::is_uppercase);
                if segments.len() > 1 || is_macro || called || capital {
                    found.push(Found { path: Written { segments, absolute }, line, is_macro });
                }
            }
            _ => {}
        }
        at += 1;
    }
}

fn is(trees: &[TokenTree], at: usize, sign: char) -> bool {
    matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn after(trees: &[TokenTree], at: usize, sign: char) -> bool {
    // The second point of a range precedes a word of its own.
    at >= 1 && is(trees, at - 1, sign) && !(sign == '.' && at >= 2 && is(trees, at - 2, '.'))
}

fn is_separator(trees: &[TokenTree], at: usize) -> bool {
    let joint = matches!(trees.get(at), Some(TokenTree::Punct(punct))
        if punct.as_char() == ':' && punct.spacing() == Spacing::Joint);
    joint && is(trees, at + 1, ':')
}

/// Words that never name an item of ours: keywords, primitive types, the prelude.
const COMMON: [&str; 40] = [
    "self", "Self", "super", "crate", "bool", "char", "str", "u8", "u16", "u32", "u64", "u128",
    "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "Some", "None", "Ok", "Err",
    "Option", "Result", "Vec", "String", "Box", "Copy", "Clone", "Debug", "Default", "From",
    "Into", "Send", "Sync", "Iterator", "Drop",
];

/// Every word in tokens that may name an item.
pub(super) fn words(tokens: &TokenStream) -> HashSet<String> {
    let mut words = HashSet::new();
    for tree in tokens.clone() {
        match tree {
            TokenTree::Ident(word) if COMMON.iter().any(|common| word == common) => {}
            TokenTree::Ident(word) => {
                words.insert(word.to_string());
            }
            TokenTree::Group(group) => words.extend(self::words(&group.stream())),
            _ => {}
        }
    }
    words
}

/// The names of items that tokens define by a keyword: `pub struct Name`, `static NAME`.
pub(super) fn definitions(tokens: &TokenStream) -> Vec<String> {
    const KEYWORDS: [&str; 9] =
        ["struct", "enum", "union", "trait", "fn", "const", "static", "type", "mod"];
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    trees
        .windows(2)
        .filter_map(|pair| match pair {
            [TokenTree::Ident(keyword), TokenTree::Ident(name)]
                if KEYWORDS.iter().any(|known| keyword == known)
                    && !KEYWORDS.iter().any(|known| name == known) =>
            {
                Some(name.to_string())
            }
            _ => None,
        })
        .collect()
}
