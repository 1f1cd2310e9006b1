//! A sight as a person, a spreadsheet and a monitor read it.

mod csv;
mod json;
mod metrics;
mod text;

pub use csv::{csv, head_of_csv};
pub use json::json;
pub use metrics::openmetrics;
pub use text::text;
