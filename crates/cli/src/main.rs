//! The `mayfly` command.
fn main() {}
