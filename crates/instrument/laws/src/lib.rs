//! Laws of growth: how long a call of KVM takes as one thing grows, such as the mappings of the process or the memslots of
//! the VM.
//!
//! [`Pair::all`] says which calls are measured against which dimensions. [`measure`] takes samples of a pair in a [`Kernel`],
//! at points over at least two decades, in random order, round by round. One point of five is *held out*: the law is
//! fitted to the others ([`fit`]), and it has to predict these within 25 % ([`HELD_OUT_BOUND`]). A law is one of the
//! [`Shape`]s. That no law is found is an answer, too.
//!
//! Results are printed as [`Text`], as a [`Page`] for a browser, and as JSON ([`Document`], `mayfly.laws/1`). Two documents are
//! compared by a [`Comparison`], and a bound may be about a [`Figure`].

mod compare;
mod document;
mod figure;
mod fit;
mod kernel;
mod kvm;
mod law;
mod measure;
mod page;
mod pair;
mod points;
mod read;
mod series;
mod shape;
mod text;
mod vmm;

pub use compare::{Comparison, Mismatch};
pub use document::{Document, Entry, SCHEMA};
pub use figure::Figure;
pub use fit::fit;
pub use kernel::{Failed, Kernel, Taken};
pub use kvm::KvmKernel;
pub use law::{HELD_OUT_BOUND, Law};
pub use measure::{FEWEST_ROUNDS, Measured, Options, Plan, measure};
pub use page::Page;
pub use pair::{Call, Dimension, Pair};
pub use series::{Kind, Missing, Point, Series};
pub use shape::Shape;
pub use text::{Text, filled};
pub use vmm::{Answer, Said, Vmm};
