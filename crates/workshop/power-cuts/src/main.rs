//! Cuts the power of a machine in QEMU again and again, whose disk forgets what was not flushed; and sees that what a guest
//! says to be flushed is there in the machine's next life.

mod console;
mod machine;
mod tally;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use mayfly_power_cuts::{Disk, Made, Random, Served, Store};

use crate::machine::Machine;
use crate::tally::Tally;

/// Cut the power of a machine again and again, and see that what was flushed is there
///
/// QEMU is given the disk as an NBD server. Among its arguments, {disk} is the path of the server's socket, {said} is the
/// last number up to which a guest has said to have flushed, in any life of the machine, and {life} the number of the
/// machine's life. The guest's console is QEMU's standard output. A guest first checks its disk, and says `guest: found`, and
/// more if it likes. Then it writes, flushes, and says `guest: flushed NUMBER`. What it finds wrong, it says with the word
/// FAILED.
#[derive(Debug, Parser)]
struct Cli {
    /// What is on the disk at first
    #[arg(long, value_name = "FILE")]
    image: PathBuf,

    /// How often the power is cut
    #[arg(long, default_value_t = 100)]
    cuts: u64,

    /// Begins the random numbers; a cut's are of the seed and of the cut's number
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// The power is cut after so many writes, discards, zeroes and flushes at most
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    changes: u64,

    /// After each cut, run this with a file of what is on the disk, which it may change; it has to succeed
    #[arg(long, value_name = "COMMAND")]
    check: Option<PathBuf>,

    /// Fail if the machine asks nothing of its disk for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,

    /// QEMU and its arguments
    #[arg(last = true, required = true)]
    qemu: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    ensure!(cli.cuts > 0 && cli.changes > 0, "nothing is to be cut");
    println!("power cuts: {} of them, seed {}", cli.cuts, cli.seed);
    let content = fs::read(&cli.image).with_context(|| cli.image.display().to_string())?;
    let store = Store::new(content).context("the image")?;
    let mut disk = Disk { store, random: Random::new(cli.seed), made: Made::default() };
    let scratch = tempfile::tempdir()?;
    let machine = Machine { command: &cli.qemu, scratch: scratch.path() };
    let mut tally = Tally::default();
    while tally.checked < cli.cuts {
        ensure!(tally.cuts < 2 * cli.cuts + 2, "too few lives have checked their disk: {tally}");
        disk.random = Random::new(cli.seed.wrapping_add(tally.cuts));
        let changes = 1 + disk.random.below(cli.changes);
        let patience = Duration::from_secs(cli.patience);
        let lived = machine
            .live(&mut disk, tally.said, tally.cuts, changes, patience)
            .with_context(|| format!("life {}", tally.cuts))?;
        let verdict = match lived.served {
            _ if lived.console.has_failed() => Some("it has found something wrong"),
            Served::Gone => Some("the machine has ended by itself"),
            Served::Idle => Some("the machine asks nothing of its disk any more"),
            Served::Cut => None,
        };
        if let Some(why) = verdict {
            lived.console.show();
            bail!("in life {} of seed {}, after {tally}: {why}", tally.cuts, cli.seed);
        }
        tally.add(&lived.console, disk.store.cut(&mut disk.random));
        if let Some(check) = &cli.check {
            let left = scratch.path().join("left");
            fs::write(&left, disk.store.durable())?;
            let status = Command::new(check).arg(&left).status().context("the check")?;
            ensure!(status.success(), "after {tally}: the check fails: {status}");
        }
        if tally.cuts.is_multiple_of(20) {
            println!("{tally}");
        }
    }
    ensure!(tally.said > 0, "nothing was flushed: {tally}");
    ensure!(tally.loss.volatile > 0, "nothing could be lost: {tally}");
    let Made { writes, flushes, discards, zeroes } = disk.made;
    println!(
        "passed, seed {}: {tally}; of {writes} writes, {zeroes} zeroes, {discards} discards and {flushes} flushes",
        cli.seed
    );
    Ok(())
}
