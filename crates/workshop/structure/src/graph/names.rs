//! What a package's files define and import: scopes, the names in them, and the references that code makes.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// A file of the package.
pub(super) type FileId = usize;

/// A scope of the package.
pub(super) type ScopeId = usize;

/// The namespaces in which a name may stand, as bits.
pub(super) type Namespaces = u8;

/// Types and modules: what may have a name after it in a path.
pub(super) const TYPES: Namespaces = 1;
/// Functions, constants, statics, and structs by way of their constructors.
pub(super) const VALUES: Namespaces = 2;
pub(super) const MACROS: Namespaces = 4;
/// What the last word of a path may be: whether a type or a value is meant is seldom clear from the path.
pub(super) const PATHS: Namespaces = TYPES | VALUES;
pub(super) const ALL: Namespaces = PATHS | MACROS;

/// An item with a name, and the file that defines it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) file: FileId,
    pub(super) scope: ScopeId,
    pub(super) namespaces: Namespaces,
    /// The variants of an enum: a glob import of the enum brings these into scope.
    pub(super) variants: Vec<String>,
}

/// A path as it is written: its segments, and whether it begins with `::`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) segments: Vec<String>,
    pub(super) absolute: bool,
}

/// One leaf of a `use`.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) scope: ScopeId,
    pub(super) path: Written,
    pub(super) line: usize,
    /// `pub use`, `pub(crate) use`, `pub(super) use`.
    pub(super) public: bool,
}

/// The word without the `r#` of a raw identifier.
pub(super) fn plain(word: &syn::Ident) -> String {
    let word = word.to_string();
    word.strip_prefix("r#").map_or(word.clone(), str::to_owned)
}

impl Written {
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a syn::Ident>, absolute: bool) -> Written {
        Written { segments: names.map(plain).collect(), absolute }
    }
}

/// What a name in a scope stands for.
#[derive(Debug)]
pub(super) enum Named {
    Item(Item),
    Module(ScopeId),
    /// An index into [`Package::imports`].
    Import(usize),
}

/// Where a scope stands.
#[derive(Debug)]
pub(super) enum Place {
    /// The root module of a library or of a binary.
    Root,
    /// A module, and the module that declares it.
    Module(ScopeId),
    /// A block with items of its own, and the scope around it.
    Block(ScopeId),
}

/// A module, or a block with items.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) file: FileId,
    pub(super) place: Place,
    pub(super) names: HashMap<String, Vec<Named>>,
    /// Glob imports, as indices into [`Package::imports`].
    pub(super) globs: Vec<usize>,
    /// The words in invocations of macros that may define items. A name that nothing else defines is looked up here.
    pub(super) made: HashSet<String>,
    /// The names of the macros that may define items here.
    pub(super) makers: HashSet<String>,
    /// Modules whose macros are in scope after them (`#[macro_use]`).
    pub(super) macro_use: Vec<ScopeId>,
}

/// A path in code.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) scope: ScopeId,
    pub(super) path: Written,
    pub(super) namespaces: Namespaces,
    pub(super) line: usize,
    /// The function around it, as an index into [`Package::locals`].
    pub(super) function: Option<usize>,
}

/// Everything that is read of a package's files.
#[derive(Debug, Default)]
pub(super) struct Package {
    pub(super) files: Vec<PathBuf>,
    pub(super) scopes: Vec<Scope>,
    pub(super) imports: Vec<Import>,
    pub(super) references: Vec<Reference>,
    /// The names that patterns bind, of each function.
    pub(super) locals: Vec<HashSet<String>>,
    /// The words in the definition of each `macro_rules!`.
    pub(super) macro_words: HashMap<String, HashSet<String>>,
    /// The library's name and root module, by which binaries of the package import it.
    pub(super) library: Option<(String, ScopeId)>,
}

impl Package {
    /// The file's id.
    pub(super) fn file(&mut self, path: PathBuf) -> FileId {
        let known = self.files.iter().position(|known| *known == path);
        known.unwrap_or_else(|| {
            self.files.push(path);
            self.files.len() - 1
        })
    }

    pub(super) fn add_scope(&mut self, file: FileId, place: Place) -> ScopeId {
        self.scopes.push(Scope {
            file,
            place,
            names: HashMap::new(),
            globs: Vec::new(),
            made: HashSet::new(),
            makers: HashSet::new(),
            macro_use: Vec::new(),
        });
        self.scopes.len() - 1
    }

    pub(super) fn name(&mut self, scope: ScopeId, name: String, named: Named) {
        self.scopes[scope].names.entry(name).or_default().push(named);
    }

    /// The module that a scope belongs to, which may be the scope itself.
    pub(super) fn module(&self, mut scope: ScopeId) -> ScopeId {
        while let Place::Block(outer) = self.scopes[scope].place {
            scope = outer;
        }
        scope
    }

    /// The module that declares the module of a scope.
    pub(super) fn parent(&self, scope: ScopeId) -> Option<ScopeId> {
        match self.scopes[self.module(scope)].place {
            Place::Module(parent) => Some(self.module(parent)),
            Place::Root | Place::Block(_) => None,
        }
    }

    /// The root module of the library or binary that a scope belongs to.
    pub(super) fn root(&self, scope: ScopeId) -> ScopeId {
        let mut module = self.module(scope);
        while let Some(parent) = self.parent(module) {
            module = parent;
        }
        module
    }

    /// Whether a scope lies below a module.
    pub(super) fn is_below(&self, scope: ScopeId, module: ScopeId) -> bool {
        let mut at = self.module(scope);
        while let Some(parent) = self.parent(at) {
            if parent == module {
                return true;
            }
            at = parent;
        }
        false
    }
}
