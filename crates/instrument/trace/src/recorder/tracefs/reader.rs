//! Reads the events of all processors, in the order of their times.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::event::{Decoder, Event, GUEST};
use super::page;
use super::place::{Instance, Place};

/// What is kept of each processor's events until they are read, in KiB, where that is not too much in all.
const MOST: usize = 4096;
const MOST_OF_ALL: usize = 256 << 10;
const LEAST: usize = 256;
/// Of the ends of threads.
const OF_ENDS: usize = 64;
/// The largest page that a buffer is read by.
const PAGE: usize = 64 << 10;

/// The instances, and what was read of them.
pub(super) struct Reader {
    ours: Source,
    all: Source,
    page: Vec<u8>,
    /// Read, and not told yet: other processors may have earlier ones.
    kept: Vec<(u64, Event)>,
    /// How many events were told.
    pub(super) count: u64,
}

struct Source {
    pipes: Vec<OwnedFd>,
    decoder: Decoder,
    instance: Instance,
}

impl Reader {
    /// Makes the instances, for the threads with these numbers and those that they will make.
    pub(super) fn start(place: &Place, threads: &[i32]) -> io::Result<Self> {
        place.clean();
        let ours = place.instance("")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let size = (MOST_OF_ALL / processors).clamp(LEAST, MOST);
        ours.write("buffer_size_kb", &size.to_string())?;
        ours.write("options/event-fork", "1")?;
        let reader = Self {
            ours: Source::of(ours, Decoder::of_ours, threads)?,
            all: {
                let all = place.instance("-ends")?;
                all.write("buffer_size_kb", &OF_ENDS.to_string())?;
                Source::of(all, Decoder::of_all, &[])?
            },
            page: vec![0; PAGE],
            kept: Vec::new(),
            count: 0,
        };
        for source in [&reader.all, &reader.ours] {
            source.instance.write("tracing_on", "1")?;
        }
        Ok(reader)
    }

    /// Follows one thread more.
    pub(super) fn follow(&self, tid: i32) -> io::Result<()> {
        self.ours.instance.write("set_event_pid", &format!("{tid}\n"))
    }

    /// vCPUs' entries are told no more.
    pub(super) fn without_entries(&self) {
        let _ = self.ours.instance.write(&format!("events/{GUEST}/enable"), "0");
    }

    /// What happened before `until`, by the clock of the events.
    pub(super) fn read(&mut self, until: u64) -> Vec<(u64, Event)> {
        for source in [&self.ours, &self.all] {
            source.read(&mut self.page, &mut self.kept);
        }
        self.kept.sort_by_key(|(at, _)| *at);
        let told = self.kept.partition_point(|(at, _)| *at < until);
        self.count += told as u64;
        self.kept.drain(..told).collect()
    }

    /// How many events were lost.
    pub(super) fn lost(&self) -> u64 {
        self.ours.instance.lost() + self.all.instance.lost()
    }

    pub(super) fn descriptors(&self) -> Vec<i32> {
        self.ours.pipes.iter().chain(&self.all.pipes).map(AsRawFd::as_raw_fd).collect()
    }
}

impl Source {
    fn of(
        instance: Instance,
        decoder: fn(&Instance) -> io::Result<Decoder>,
        threads: &[i32],
    ) -> io::Result<Self> {
        let pipes = instance.pipes()?;
        // First: an instance without any has all threads of the host.
        for tid in threads {
            instance.write("set_event_pid", &format!("{tid}\n"))?;
        }
        let decoder = decoder(&instance)?;
        Ok(Self { pipes, decoder, instance })
    }

    fn read(&self, buffer: &mut [u8], into: &mut Vec<(u64, Event)>) {
        for pipe in &self.pipes {
            loop {
                match rustix::io::read(pipe, &mut *buffer) {
                    Err(Errno::INTR) => {}
                    Err(_) | Ok(0) => break,
                    Ok(length) => page::events(&buffer[..length], |at, content| {
                        into.extend(self.decoder.event(content).map(|event| (at, event)));
                    }),
                }
            }
        }
    }
}
