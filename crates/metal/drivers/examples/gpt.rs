//! Makes a disk with a GPT in a file, for the tests of the hypervisor: `gpt FILE NAME=MIB...`. A partition begins where the
//! one before it ends, at 1 MiB at first.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

#[path = "../tests/table/mod.rs"]
mod table;

const MIB: u64 = (1 << 20) / table::SECTOR as u64;

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: gpt FILE NAME=MIB...");
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or_else(usage)?;
    let (mut entries, mut at) = (Vec::new(), MIB);
    for argument in arguments {
        let (name, size) = argument.split_once('=').ok_or_else(usage)?;
        let size: u64 = size.parse().map_err(|_| usage())?;
        entries.push(table::entry(name, at, at + size * MIB - 1));
        at += size * MIB;
    }
    let sectors = at + MIB;
    let mut file = File::create(path)?;
    file.set_len(sectors * table::SECTOR as u64)?;
    for (sector, bytes) in table::table(sectors, &entries) {
        file.seek(SeekFrom::Start(sector * table::SECTOR as u64))?;
        file.write_all(&bytes)?;
    }
    Ok(())
}
