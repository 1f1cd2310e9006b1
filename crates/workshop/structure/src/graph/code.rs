//! The code of one file: each item is named in its scope, each `use` is an import, and each path is a reference.

use std::collections::HashSet;

use syn::Item as Syntax;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::imports::{self, Brings};
use super::modules::Location;
use super::names::{
    Import, Item, MACROS, Named, Namespaces, PATHS, Package, Place, Reference, ScopeId, Written,
    plain,
};
use super::tokens::{self, Body};
use super::{attributes, items};
use crate::Fault;

/// A module whose contents are in a file of their own.
pub(super) struct Found {
    pub(super) scope: ScopeId,
    pub(super) at: Location,
}

/// Walks one file.
pub(super) struct Code<'a> {
    package: &'a mut Package,
    at: Location,
    scope: ScopeId,
    /// The function around, as an index into [`Package::locals`].
    function: Option<usize>,
    modules: Vec<Found>,
    /// The first module without a file.
    fault: Option<Fault>,
}

impl<'a> Code<'a> {
    pub(super) fn new(package: &'a mut Package, module: Found) -> Self {
        let Found { scope, at } = module;
        Code { package, at, scope, function: None, modules: Vec::new(), fault: None }
    }

    /// Reads the file's items. Returns the modules that it declares in files of their own.
    pub(super) fn read(mut self, items: &[Syntax]) -> Result<Vec<Found>, Fault> {
        for item in items {
            self.visit_item(item);
        }
        self.fault.map_or(Ok(self.modules), Err)
    }

    fn item(&self, name: String, namespaces: Namespaces, variants: Vec<String>) -> Item {
        let file = self.package.scopes[self.scope].file;
        Item { name, file, scope: self.scope, namespaces, variants }
    }

    fn define(&mut self, item: Item) {
        self.package.name(self.scope, item.name.clone(), Named::Item(item));
    }

    fn refer(&mut self, path: Written, namespaces: Namespaces, line: usize) {
        let (scope, function) = (self.scope, self.function);
        self.package.references.push(Reference { scope, path, namespaces, line, function });
    }

    /// Refers to what the first words of a path stand for.
    fn refer_to(&mut self, path: &syn::Path, words: usize, namespaces: Namespaces) {
        let names = path.segments.iter().take(words).map(|segment| &segment.ident);
        let written = Written::of(names, path.leading_colon.is_some());
        self.refer(written, namespaces, path.span().start().line);
    }

    /// `<Type as Trait>::item`: the type, and the trait.
    fn qualified(&mut self, qualified: &syn::QSelf, path: &syn::Path) {
        self.visit_type(&qualified.ty);
        if qualified.position > 0 {
            self.refer_to(path, qualified.position, PATHS);
        }
        visit::visit_path(self, path);
    }

    fn import(&mut self, item: &syn::ItemUse) {
        let public = match &item.vis {
            syn::Visibility::Inherited => false,
            syn::Visibility::Restricted(to) => !to.path.is_ident("self"),
            syn::Visibility::Public(_) => true,
        };
        for leaf in imports::leaves(item) {
            let import = self.package.imports.len();
            self.package.imports.push(Import {
                scope: self.scope,
                path: leaf.path,
                line: leaf.line,
                public,
            });
            match leaf.brings {
                Brings::Name(name) => self.package.name(self.scope, name, Named::Import(import)),
                Brings::All => self.package.scopes[self.scope].globs.push(import),
                Brings::NoName => {}
            }
        }
    }

    /// `mod name { … }` or `mod name;`.
    fn module(&mut self, module: &syn::ItemMod) {
        if let Some((_, items)) = &module.content {
            let scope = self
                .package
                .add_scope(self.package.scopes[self.scope].file, Place::Module(self.scope));
            self.declare(module, scope);
            let at = self.at.inside(module);
            let outer = (self.scope, std::mem::replace(&mut self.at, at), self.function.take());
            self.scope = scope;
            for item in items {
                self.visit_item(item);
            }
            (self.scope, self.at, self.function) = outer;
            return;
        }
        match self.at.of(module) {
            Ok(at) => {
                let file = self.package.file(at.file.clone());
                let scope = self.package.add_scope(file, Place::Module(self.scope));
                self.declare(module, scope);
                self.modules.push(Found { scope, at });
            }
            Err(fault) => {
                self.fault.get_or_insert(fault);
            }
        }
    }

    fn declare(&mut self, module: &syn::ItemMod, scope: ScopeId) {
        self.package.name(self.scope, plain(&module.ident), Named::Module(scope));
        if attributes::has(&module.attrs, "macro_use") {
            self.package.scopes[self.scope].macro_use.push(scope);
        }
    }
    /// `macro_rules! name { … }`.
    fn macro_definition(&mut self, name: &syn::Ident, definition: &syn::ItemMacro) {
        let tokens = &definition.mac.tokens;
        let item = self.item(plain(name), MACROS, Vec::new());
        if attributes::has(&definition.attrs, "macro_export") {
            let root = self.package.root(self.scope);
            self.package.name(root, item.name.clone(), Named::Item(item.clone()));
        }
        let words = self.package.macro_words.entry(item.name.clone()).or_default();
        words.extend(tokens::words(tokens));
        self.define(item);
        // A single word in a macro's definition means what it means where the macro is used.
        self.found(tokens::paths(tokens).into_iter().filter(|found| found.path.segments.len() > 1));
    }

    /// An invocation that stands where an item does, and may define some.
    fn item_macro(&mut self, invoked: &syn::Macro) {
        let scope = &mut self.package.scopes[self.scope];
        scope.made.extend(tokens::words(&invoked.tokens));
        scope.makers.extend(invoked.path.segments.last().map(|last| plain(&last.ident)));
        for name in tokens::definitions(&invoked.tokens) {
            let item = self.item(name, PATHS, Vec::new());
            self.define(item);
        }
        self.visit_macro(invoked);
    }

    fn found(&mut self, paths: impl Iterator<Item = tokens::Found>) {
        for found in paths {
            self.refer(found.path, if found.is_macro { MACROS } else { PATHS }, found.line);
        }
    }

    /// A function's code, with the names that its patterns bind.
    fn in_function(&mut self, walk: impl FnOnce(&mut Self)) {
        self.package.locals.push(HashSet::new());
        let outer = self.function.replace(self.package.locals.len() - 1);
        walk(self);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Code<'_> {
    fn visit_item(&mut self, item: &'ast Syntax) {
        if attributes::is_test(items::attributes(item)) {
            return;
        }
        for (name, namespaces) in items::defined(item) {
            let item = self.item(plain(name), namespaces, items::variants(item));
            self.define(item);
        }
        match item {
            Syntax::Fn(item) => self.in_function(|code| visit::visit_item_fn(code, item)),
            Syntax::Macro(item) => match &item.ident {
                Some(name) => self.macro_definition(name, item),
                None => self.item_macro(&item.mac),
            },
            Syntax::Mod(item) => self.module(item),
            Syntax::Use(item) => self.import(item),
            other => visit::visit_item(self, other),
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let outer = self.scope;
        if block.stmts.iter().any(|statement| matches!(statement, syn::Stmt::Item(_))) {
            let file = self.package.scopes[outer].file;
            self.scope = self.package.add_scope(file, Place::Block(outer));
        }
        visit::visit_block(self, block);
        self.scope = outer;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.refer_to(path, path.segments.len(), PATHS);
        visit::visit_path(self, path);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        match &path.qself {
            Some(qualified) => self.qualified(qualified, &path.path),
            None => self.visit_path(&path.path),
        }
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        match &path.qself {
            Some(qualified) => self.qualified(qualified, &path.path),
            None => self.visit_path(&path.path),
        }
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        self.refer_to(&invoked.path, invoked.path.segments.len(), MACROS);
        match tokens::read(&invoked.tokens) {
            Body::Expressions(expressions) => {
                for expression in expressions {
                    self.visit_expr(&expression);
                }
            }
            Body::Match(matches) => {
                self.visit_expr(&matches.value);
                self.visit_pat(&matches.pattern);
                if let Some(guard) = &matches.guard {
                    self.visit_expr(guard);
                }
            }
            Body::Statements(statements) => {
                for statement in statements {
                    self.visit_stmt(&statement);
                }
            }
            Body::Tokens(found) => self.found(found.into_iter()),
        }
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = plain(&pattern.ident);
        if pattern.subpat.is_none() && name.starts_with(char::is_uppercase) {
            // A constant, or a variant without fields.
            let written = Written { segments: vec![name], absolute: false };
            self.refer(written, PATHS, pattern.ident.span().start().line);
        } else if let Some(function) = self.function {
            self.package.locals[function].insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attributes::is_inert(attribute) {
            return;
        }
        let syn::Meta::List(list) = &attribute.meta else { return };
        let long = |found: &tokens::Found| found.path.segments.len() > 1;
        self.found(tokens::paths(&list.tokens).into_iter().filter(long));
        for tree in list.tokens.clone() {
            // serde takes paths as texts: `#[serde(with = "crate::text")]`.
            if let proc_macro2::TokenTree::Literal(literal) = tree
                && attribute.path().is_ident("serde")
                && let syn::Lit::Str(text) = syn::Lit::new(literal)
                && let Ok(path) = text.parse::<syn::Path>()
                && path.segments.len() > 1
            {
                self.visit_path(&path);
            }
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Const(item) if attributes::is_test(&item.attrs) => {}
            syn::ImplItem::Type(item) if attributes::is_test(&item.attrs) => {}
            syn::ImplItem::Fn(item) if attributes::is_test(&item.attrs) => {}
            syn::ImplItem::Fn(item) => {
                self.in_function(|code| visit::visit_impl_item_fn(code, item));
            }
            item => visit::visit_impl_item(self, item),
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        match item {
            syn::TraitItem::Fn(item) if attributes::is_test(&item.attrs) => {}
            syn::TraitItem::Fn(item) => {
                self.in_function(|code| visit::visit_trait_item_fn(code, item));
            }
            item => visit::visit_trait_item(self, item),
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !attributes::is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !attributes::is_test(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !attributes::is_test(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !attributes::is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_field_value(&mut self, value: &'ast syn::FieldValue) {
        if !attributes::is_test(&value.attrs) {
            visit::visit_field_value(self, value);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !attributes::is_test(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_stmt_macro(&mut self, invoked: &'ast syn::StmtMacro) {
        if !attributes::is_test(&invoked.attrs) {
            visit::visit_stmt_macro(self, invoked);
        }
    }
}
