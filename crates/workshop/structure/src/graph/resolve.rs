//! What a path stands for: the item that it names, followed through imports and re-exports to its definition.

use std::collections::HashSet;

use super::names::{
    ALL, Item, MACROS, Named, Namespaces, Package, Place, Reference, ScopeId, TYPES, VALUES,
    Written,
};

/// What a path resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Item(Item),
    Module(ScopeId),
    /// An item of another package.
    Outside,
}

/// One resolution. Imports may name each other in a circle, so each is followed once.
pub(super) struct Resolver<'a> {
    package: &'a Package,
    /// The imports that are being followed, with the name that is looked up in a glob import.
    open: HashSet<(usize, String, Namespaces)>,
    /// Whether names count that only an invocation of a macro may have defined.
    made: bool,
}

impl Package {
    /// What a reference stands for: more than one meaning where `cfg` chooses.
    pub(super) fn meanings(&self, reference: &Reference) -> Vec<Meaning> {
        let segments = &reference.path.segments;
        if let ([name], Some(function)) = (&segments[..], reference.function)
            && reference.namespaces & VALUES != 0
            && self.locals[function].contains(name)
        {
            return Vec::new();
        }
        self.resolve(reference.scope, &reference.path, reference.namespaces)
    }

    /// What an import stands for.
    pub(super) fn imported(&self, import: usize) -> Vec<Meaning> {
        let import = &self.imports[import];
        self.resolve(import.scope, &import.path, ALL)
    }

    fn resolve(&self, scope: ScopeId, path: &Written, namespaces: Namespaces) -> Vec<Meaning> {
        let mut fallback = Vec::new();
        for made in [false, true] {
            let mut resolver = Resolver { package: self, open: HashSet::new(), made };
            let found = resolver.path(scope, path, namespaces);
            if found.iter().any(|meaning| *meaning != Meaning::Outside) {
                return found;
            }
            fallback = found;
        }
        fallback
    }
}

impl Resolver<'_> {
    fn path(&mut self, scope: ScopeId, path: &Written, namespaces: Namespaces) -> Vec<Meaning> {
        let mut rest = &path.segments[..];
        let mut at: Option<Vec<Meaning>> = None;
        let mut module = self.package.module(scope);
        if !path.absolute {
            while let Some((first, others)) = rest.split_first() {
                match first.as_str() {
                    "crate" => module = self.package.root(scope),
                    "self" => {}
                    "super" => match self.package.parent(module) {
                        Some(parent) => module = parent,
                        None => return Vec::new(),
                    },
                    _ => break,
                }
                at = Some(vec![Meaning::Module(module)]);
                rest = others;
            }
        }
        let mut at = match (at, rest.split_first()) {
            (Some(at), _) => at,
            (None, Some((first, others))) => {
                rest = others;
                let of_first = if others.is_empty() { namespaces } else { TYPES };
                if path.absolute { self.library(first) } else { self.first(scope, first, of_first) }
            }
            (None, None) => return Vec::new(),
        };
        while let Some((name, others)) = rest.split_first() {
            rest = others;
            let of_name = if others.is_empty() { namespaces } else { TYPES };
            at = at
                .into_iter()
                .flat_map(|meaning| match meaning {
                    Meaning::Module(module) => self.member(module, name, of_name),
                    // What follows is an associated item or a variant.
                    item => vec![item],
                })
                .collect();
        }
        at
    }

    /// The first word of a path: a name in the scopes around it, or that of a package.
    fn first(&mut self, scope: ScopeId, name: &str, namespaces: Namespaces) -> Vec<Meaning> {
        let mut at = scope;
        loop {
            let found = self.member(at, name, namespaces);
            if !found.is_empty() {
                return found;
            }
            match self.package.scopes[at].place {
                Place::Block(outer) => at = outer,
                Place::Module(_) | Place::Root => break,
            }
        }
        if namespaces & MACROS != 0 {
            let found = self.textual(at, name);
            if !found.is_empty() {
                return found;
            }
        }
        self.library(name)
    }

    /// A package by its name: our own library, or one of others.
    fn library(&self, name: &str) -> Vec<Meaning> {
        match &self.package.library {
            Some((known, scope)) if known == name => vec![Meaning::Module(*scope)],
            _ => vec![Meaning::Outside],
        }
    }

    /// A macro that is defined in a module around this one, or in one that is marked `#[macro_use]`.
    fn textual(&self, module: ScopeId, name: &str) -> Vec<Meaning> {
        let mut at = Some(module);
        while let Some(module) = at {
            let scope = &self.package.scopes[module];
            for place in std::iter::once(module).chain(scope.macro_use.iter().copied()) {
                let names = self.package.scopes[place].names.get(name).into_iter().flatten();
                let mut macros = names.filter_map(|named| match named {
                    Named::Item(item) if item.namespaces & MACROS != 0 => Some(item.clone()),
                    _ => None,
                });
                if let Some(item) = macros.next() {
                    return vec![Meaning::Item(item)];
                }
            }
            at = self.package.parent(module);
        }
        Vec::new()
    }

    /// A name in a scope: what it defines or imports by name, else what its glob imports bring.
    fn member(&mut self, scope: ScopeId, name: &str, namespaces: Namespaces) -> Vec<Meaning> {
        let package = self.package;
        let mut found: Vec<Meaning> = Vec::new();
        for named in package.scopes[scope].names.get(name).into_iter().flatten() {
            let more = match named {
                Named::Item(item) if item.namespaces & namespaces != 0 => {
                    vec![Meaning::Item(item.clone())]
                }
                Named::Module(module) if namespaces & TYPES != 0 => vec![Meaning::Module(*module)],
                Named::Item(_) | Named::Module(_) => Vec::new(),
                Named::Import(import) => self.import(*import, namespaces),
            };
            found.extend(more);
        }
        if found.is_empty() {
            for glob in &package.scopes[scope].globs {
                found.extend(self.glob(*glob, name, namespaces));
            }
        }
        if found.is_empty() && self.made && self.may_make(scope, name) {
            let file = package.scopes[scope].file;
            let item =
                Item { name: name.to_owned(), file, scope, namespaces, variants: Vec::new() };
            found.push(Meaning::Item(item));
        }
        let mut unique: Vec<Meaning> = Vec::new();
        for meaning in found {
            if !unique.contains(&meaning) {
                unique.push(meaning);
            }
        }
        unique
    }

    fn import(&mut self, import: usize, namespaces: Namespaces) -> Vec<Meaning> {
        let key = (import, String::new(), namespaces);
        if !self.open.insert(key.clone()) {
            return Vec::new();
        }
        let of = &self.package.imports[import];
        let found = self.path(of.scope, &of.path, namespaces);
        self.open.remove(&key);
        found
    }

    fn glob(&mut self, import: usize, name: &str, namespaces: Namespaces) -> Vec<Meaning> {
        let key = (import, name.to_owned(), namespaces);
        if !self.open.insert(key.clone()) {
            return Vec::new();
        }
        let of = &self.package.imports[import];
        let of_glob = self.path(of.scope, &of.path, TYPES);
        let found = of_glob
            .into_iter()
            .flat_map(|meaning| match meaning {
                Meaning::Module(module) => self.member(module, name, namespaces),
                Meaning::Item(item) if item.variants.iter().any(|variant| variant == name) => {
                    vec![Meaning::Item(item)]
                }
                Meaning::Item(_) | Meaning::Outside => Vec::new(),
            })
            .collect();
        self.open.remove(&key);
        found
    }

    /// Whether an invocation of a macro in this scope may define the name.
    fn may_make(&self, scope: ScopeId, name: &str) -> bool {
        let of = &self.package.scopes[scope];
        let words = |maker| self.package.macro_words.get(maker);
        of.made.contains(name)
            || of
                .makers
                .iter()
                .filter_map(words)
                .any(|words: &HashSet<String>| words.contains(name))
    }
}
