//! What an ITS does: the commands of its queue, and the translation of events.

use mayfly_platform::sync::Ordering;

use super::command::{COMMAND_BYTES, Command};
use super::lpi::GuestTables;
use super::tables::{Its, Mapping};
use crate::state::{FIRST_LPI, State};
use crate::vgic::in_parts;
use crate::{Kick, NotMapped, PART, Vgic};

/// `GITS_CBASER` and `GITS_BASERn` are used.
pub(crate) const VALID: u64 = 1 << 63;
/// `GITS_CBASER`: the address, and how many pages of 4 KiB, less one.
const CBASER_ADDRESS: u64 = 0xf_ffff_ffff_f000;
const CBASER_SIZE: u64 = 0xff;

/// What is left after a call of [`Vgic::serve_its`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Nothing, until [`Vgic::has_its_work`] says so.
    Nothing,
    /// Something, as [`Vgic::has_its_work`] says: the caller comes again.
    More,
    /// A command waits for a vCPU to come out of its guest, for which that was kicked. The caller comes again, after other
    /// threads had the processor.
    Waits,
}

/// Bytes of the queue of commands.
pub(crate) const fn queue_bytes(cbaser: u64) -> u64 {
    ((cbaser & CBASER_SIZE) + 1) << 12
}

/// What became of a command.
enum Executed {
    Yes,
    /// It is to be executed again.
    Waits,
}

impl<K: Kick> Vgic<K> {
    /// Whether [`Vgic::serve_its`] has something to do: looked at after a write to a frame, and by the thread that serves
    /// before it sleeps.
    pub fn has_its_work(&self) -> bool {
        self.its.as_ref().is_some_and(Its::is_work_left)
    }

    /// Does some of what the guest wants of the ITS and of the redistributors' tables: [`PART`] commands at most. For one
    /// thread of the VM; another that comes meanwhile does nothing, and is told to come again.
    ///
    /// `pause` is called after each [`PART`] LPIs, and after each command. It may call any of the other methods.
    pub fn serve_its(
        &self,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) -> Served {
        let Some(its) = &self.its else { return Served::Nothing };
        let Some(mut busy) = its.begin() else {
            its.has_work();
            return Served::More;
        };
        its.take_work();
        let served = self.serve_alone(its, memory, pause);
        if served == Served::Nothing {
            busy.finish();
        }
        served
    }

    fn serve_alone(
        &self,
        its: &Its,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) -> Served {
        for vcpu in 0..self.vcpus() {
            self.serve_lpis(its, vcpu, memory, pause);
        }
        for _ in 0..PART {
            let Some((at, next, queue)) = next_command(its) else { return Served::Nothing };
            let mut bytes = [0; COMMAND_BYTES as usize];
            let command = memory.read(queue + at, &mut bytes).then(|| Command::decode(&bytes));
            if let Some(command) = command.flatten()
                && let Executed::Waits = self.execute(its, command, memory, pause)
            {
                return Served::Waits;
            }
            // The guest may have begun another queue meanwhile, which is read from its beginning.
            let _ = its.creadr.compare_exchange(at, next, Ordering::Release, Ordering::Relaxed);
            pause();
        }
        Served::More
    }

    fn execute(
        &self,
        its: &Its,
        command: Command,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) -> Executed {
        match command {
            Command::MapDevice { device, bits } => {
                if has_table(its, 0) && bits <= its.config.event_bits {
                    its.map_device(device, bits, pause);
                }
            }
            Command::MapCollection { collection, vcpu } => {
                if has_table(its, 1) && vcpu.is_none_or(|vcpu| vcpu < self.vcpus()) {
                    its.map_collection(collection, vcpu);
                }
            }
            Command::MapEvent { device, event, intid, collection } => {
                let lpi = intid.checked_sub(FIRST_LPI).map(|lpi| lpi as usize);
                if let Some(lpi) = lpi.filter(|lpi| *lpi < self.lpis.len())
                    && collection < its.collections.len()
                    && its.map_event(device, event, Some(Mapping { lpi, collection }))
                {
                    self.configure(its, lpi..lpi + 1, memory, pause);
                }
            }
            Command::MoveEvent { device, event, collection } => {
                if let Some(mapping) = its.mapping(device, event)
                    && let Some(vcpu) = its.target(collection)
                {
                    its.map_event(device, event, Some(Mapping { collection, ..mapping }));
                    self.move_pending(mapping.lpi, None, vcpu);
                }
            }
            Command::MoveAll { from, to } => {
                if from < self.vcpus() && to < self.vcpus() {
                    in_parts(self.lpis.len(), pause, |lpi| {
                        self.move_pending(lpi, Some(from), to);
                    });
                }
            }
            Command::Discard { device, event } => {
                if let Some(mapping) = its.mapping(device, event) {
                    its.map_event(device, event, None);
                    self.clear_pending(mapping.lpi);
                }
            }
            Command::Interrupt { device, event } => {
                let _ = self.translate(its, device, event);
            }
            Command::Clear { device, event } => {
                if let Some(mapping) = its.mapping(device, event) {
                    self.clear_pending(mapping.lpi);
                }
            }
            Command::Invalidate { device, event } => {
                if let Some(Mapping { lpi, .. }) = its.mapping(device, event) {
                    self.configure(its, lpi..lpi + 1, memory, pause);
                }
            }
            Command::InvalidateAll { collection } => {
                if its.target(collection).is_some() {
                    self.configure(its, 0..self.lpis.len(), memory, pause);
                }
            }
            Command::Sync if self.is_lpi_recalled(pause) => return Executed::Waits,
            Command::Sync => {}
        }
        Executed::Yes
    }

    /// Whether a running vCPU may still take an LPI that was disabled, cleared, or moved to another vCPU.
    fn is_lpi_recalled(&self, pause: &mut dyn FnMut()) -> bool {
        if !self.is_any_recalled() {
            return false;
        }
        let mut found = false;
        in_parts(self.lpis.len(), pause, |lpi| {
            found |= State(self.lpis[lpi].load(Ordering::Acquire)).is_recalled();
        });
        found
    }

    fn translate(&self, its: &Its, device: u32, event: u32) -> Option<()> {
        let mapping = its.mapping(device, event)?;
        self.make_pending(mapping.lpi, its.target(mapping.collection)?);
        Some(())
    }

    /// A device writes the number of an event to `GITS_TRANSLATER`. An LPI that is pending at a redistributor whose LPIs
    /// are off is dropped, as hardware does.
    ///
    /// # Errors
    ///
    /// [`NotMapped`].
    pub fn send_msi(&self, device: u32, event: u32) -> Result<(), NotMapped> {
        let its = self.its.as_ref().filter(|its| its.enabled.load(Ordering::Acquire) != 0);
        let sent = its.and_then(|its| self.translate(its, device, event));
        sent.ok_or(NotMapped { device, event })
    }
}

/// The offset of the next command, that of the one after it, and where the queue is; if there is one, and the ITS is on.
fn next_command(its: &Its) -> Option<(u64, u64, u64)> {
    let cbaser = its.cbaser.load(Ordering::Acquire);
    let at = its.creadr.load(Ordering::Relaxed);
    // Acquire: the commands that are before it are in memory.
    let end = its.cwriter.load(Ordering::Acquire);
    let size = queue_bytes(cbaser);
    let is_there = cbaser & VALID != 0 && at != end && at < size && end < size;
    if its.enabled.load(Ordering::Acquire) == 0 || !is_there {
        return None;
    }
    Some((at, (at + COMMAND_BYTES) % size, cbaser & CBASER_ADDRESS))
}

/// Whether the guest has given memory for the table of devices, 0, or of collections, 1.
fn has_table(its: &Its, table: usize) -> bool {
    its.basers[table].load(Ordering::Acquire) & VALID != 0
}
