//! One read-side section, whose code `tests/emitted_code.rs` looks at.

use std::sync::Arc;

use mayfly_platform::Host;
use mayfly_srcu::{Config, Rcu, RcuBox, Reader, Srcu};

#[inline(never)]
fn read_in_one_section(reader: &Reader, value: &Rcu<u64>) -> u64 {
    *value.load(&reader.lock())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Srcu::try_new(Arc::new(Host::new()), Config::default())?;
    let (reader, value) = (domain.reader()?, Rcu::new(&domain, RcuBox::try_new(42)?));
    println!("{}", read_in_one_section(&reader, &value));
    Ok(())
}
