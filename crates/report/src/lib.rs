//! How a record is shown to a person.
//!
//! A [`Report`] needs nothing but the record: what an experiment is called, what it measures and in which order its
//! metrics stand, the record says itself.

mod group;
mod heading;
mod medians;
mod noise;
mod percentiles;
mod report;
mod tallies;
mod text;
mod value;

pub use report::Report;
