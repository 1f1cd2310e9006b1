//! The machine's own disk, and who has which of its partitions.
//!
//! A thread serves it. First this thread reads the table of partitions; nobody has one before. Then it takes the requests
//! that have ended, and gives each to the VM that waits for it ([`Tenant`]).
//!
//! **Locks.** Each is a spin lock, held for a moment, and none of them is held while another is taken. What one has let go is
//! dropped after it: the end of a [`Tenant`] takes locks.
//!
//! **No wake-up is lost** of a VM that waits for room ([`Waiting`]): it is noted that it waits under the lock of the driver,
//! under which it has found no room. Room is given back under this lock, too, and those that wait then are told.
//!
//! **Time.** What the thread does for a VM's request is charged to the VM.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_drivers::{
    BadTable, Broken, Disk, DiskInfo, Failed, Operation, Partitions, Registers, SECTOR, Unusable,
};
use mayfly_hypervisor::partition::PartitionUse;
use mayfly_hypervisor::waiting::Waiting;

use super::DISK;
use super::dma::Dma;
use super::tenant::{Piece, PieceSlot, Tenant};
use crate::bare::processor::once::Once;
use crate::bare::processor::own;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads::console::say;
use crate::bare::threads::interrupts::OWN;
use crate::bare::threads::{self, Account, Bell};

/// The most VMs that have a partition.
const MOST_CLAIMS: usize = 64;
/// The most names of partitions in a message of the disk's, and in one that says that there is no such partition. The latter
/// is made in one piece, without a look for interrupts.
const MOST_NAMES: usize = 32;
const FEW_NAMES: usize = 4;

/// Who has a partition.
struct Claim {
    number: u64,
    /// The first sector of the partition.
    start: u64,
    is_read_only: bool,
    vm: String,
}

/// The driver, and the VMs that wait for room.
struct Driver {
    disk: Disk<Dma, Registers, Option<Piece>>,
    waiting: Waiting<Arc<Bell>>,
}

/// The disk of the machine.
pub(crate) struct OwnDisk {
    driver: SpinLock<Driver>,
    info: DiskInfo,
    /// Room for the table, until it is read.
    room: SpinLock<Option<Partitions>>,
    /// The table, and whether it was read. Its memory stays, whatever was found.
    table: Once<(Partitions, Result<(), BadTable>)>,
    claims: SpinLock<Vec<Claim>>,
    /// The number of the next claim.
    number: AtomicU64,
}

static IT: Once<OwnDisk> = Once::new();

pub(super) fn set(registers: Registers) -> Result<(), Unusable> {
    let disk = Disk::new(registers)?;
    let info = disk.info();
    let room = Partitions::try_new().map_err(|_| Unusable::NoMemory)?;
    let mut claims = Vec::new();
    claims.try_reserve_exact(MOST_CLAIMS).map_err(|_| Unusable::NoMemory)?;
    // One that waits has a claim.
    let waiting = Waiting::try_new(MOST_CLAIMS).map_err(|_| Unusable::NoMemory)?;
    IT.set(OwnDisk {
        driver: SpinLock::new(Driver { disk, waiting }),
        info,
        room: SpinLock::new(Some(room)),
        table: Once::new(),
        claims: SpinLock::new(claims),
        number: AtomicU64::new(0),
    });
    Ok(())
}

/// The disk, if the machine has one that can be used.
pub(crate) fn get() -> Option<&'static OwnDisk> {
    IT.get()
}

/// Whether it is known which partitions there are, or that there are none.
pub(crate) fn is_known() -> bool {
    get().is_none_or(|disk| disk.table.get().is_some())
}

/// Gives a partition to VM `vm`, whose account pays for it, until it [leaves](Tenant::leave).
///
/// # Errors
///
/// Says why not.
pub(crate) fn claim(
    wanted: &PartitionUse,
    vm: &str,
    account: &Arc<Account>,
) -> Result<Arc<Tenant>, String> {
    let disk = get().ok_or("the machine has no disk that can be used")?;
    let (table, read) = disk.table.get().ok_or("the table of partitions is not read yet")?;
    read.map_err(|why| format!("the machine's disk has no partitions: {why}"))?;
    let name = &wanted.name;
    let partition = table.find(name, threads::preemption_point).ok_or_else(|| {
        let names = table.names(FEW_NAMES);
        format!("the machine's disk has no partition {name}; it has {names}")
    })?;
    if let Some(why) = partition.wrong {
        return Err(format!("the partition {name} is not used: {why}"));
    }
    if disk.info.read_only && !wanted.is_read_only {
        return Err(format!("the machine's disk cannot be written: disk=part:{name},ro reads it"));
    }
    let number = disk.number.fetch_add(1, Ordering::Relaxed);
    let start = partition.sectors.start;
    let sectors = partition.sectors.clone();
    let tenant = Tenant::new(disk, number, sectors, wanted.is_read_only, account);
    let tenant = Arc::new(tenant);
    let claim = Claim { number, start, is_read_only: wanted.is_read_only, vm: vm.into() };
    disk.admit(claim).map_err(|refused| match refused {
        None => format!("{MOST_CLAIMS} VMs have a partition already"),
        Some((vm, true)) => format!("the partition {name} is read by {vm}"),
        Some((vm, false)) => format!("the partition {name} is written by {vm}"),
    })?;
    Ok(tenant)
}

/// Rings when the disk has ended a request.
fn bell() -> &'static Bell {
    &OWN[DISK]
}

/// The end of a tenant, under which nothing is under way any more. Its partition is free.
pub(super) fn release(tenant: &Tenant) {
    let bell = tenant.disk.driver.lock().waiting.leave(tenant.number);
    drop(bell);
    let claim = {
        let mut claims = tenant.disk.claims.lock();
        let place = claims.iter().position(|claim| claim.number == tenant.number);
        place.map(|place| claims.swap_remove(place))
    };
    drop(claim);
}

impl OwnDisk {
    /// What it is.
    pub(super) fn info(&self) -> DiskInfo {
        self.info
    }

    /// Admits a claim. If another is in its way: whose that is, and whether it only reads.
    fn admit(&self, claim: Claim) -> Result<(), Option<(String, bool)>> {
        let mut claims = self.claims.lock();
        let is_in_its_way = |other: &&Claim| {
            other.start == claim.start && !(other.is_read_only && claim.is_read_only)
        };
        if let Some(other) = claims.iter().find(is_in_its_way) {
            return Err(Some((other.vm.clone(), other.is_read_only)));
        }
        if claims.len() == MOST_CLAIMS {
            return Err(None);
        }
        claims.push(claim);
        Ok(())
    }

    pub(super) fn room(&self, tenant: &Tenant, piece: Piece) -> Result<Option<PieceSlot>, Broken> {
        let bell = tenant.bell();
        let (room, not_needed) = {
            let mut driver = self.driver.lock();
            match driver.disk.room(tenant.number, Some(piece))? {
                Ok(slot) => (Some(slot), (None, bell)),
                Err(piece) => {
                    let bell = bell.and_then(|bell| driver.waiting.join(tenant.number, bell));
                    (None, (piece, bell))
                }
            }
        };
        drop(not_needed);
        Ok(room)
    }

    pub(super) fn start(&self, slot: PieceSlot, operation: Operation) -> Result<(), PieceSlot> {
        self.driver.lock().disk.start(slot, operation)
    }

    pub(super) fn give_back(&self, slot: PieceSlot) {
        let (piece, mark) = {
            let mut driver = self.driver.lock();
            (driver.disk.give_back(slot), driver.waiting.mark())
        };
        drop(piece);
        loop {
            let bell = self.driver.lock().waiting.take(mark);
            let Some(bell) = bell else { return };
            bell.ring();
            threads::interrupts::look();
        }
    }

    /// The next request that has ended, and why the disk is used no more, if it is not.
    fn next_ended(&self) -> (Option<PieceSlot>, Option<Broken>) {
        let has_changed = own::take_change(DISK);
        let mut driver = self.driver.lock();
        if has_changed {
            driver.disk.look(own::is_heard(DISK));
        }
        (driver.disk.ended(), driver.disk.broken())
    }

    /// What its thread does, for good.
    pub(crate) fn serve(&self) {
        self.read_table();
        let mut was_broken = false;
        loop {
            let seen = bell().rung();
            loop {
                let (ended, broken) = self.next_ended();
                if let Some(broken) = broken.filter(|_| !was_broken) {
                    was_broken = true;
                    say!("mayfly: the machine's disk is used no more: {broken}");
                }
                let Some(mut slot) = ended else { break };
                let tenant = slot.waiter.as_mut().and_then(|piece| piece.tenant.take());
                if let Some(tenant) = tenant {
                    tenant.note(slot);
                    threads::has_worked_for(&tenant.account);
                }
                threads::preemption_point();
            }
            bell().wait(seen, u64::MAX);
        }
    }

    fn read_table(&self) {
        let Some(mut table) = self.room.lock().take() else { return };
        let read = table.read(
            self.info.sectors,
            |sector, into| self.read_sector(sector, into),
            threads::preemption_point,
        );
        let mib = self.info.sectors >> 11;
        match read {
            Ok(()) => {
                let which = if table.is_second() {
                    "; by the second GPT, as the first is damaged"
                } else {
                    ""
                };
                say!(
                    "mayfly: the machine's disk has {mib} MiB, and the partitions {}{which}",
                    table.names(MOST_NAMES)
                );
                for partition in table.all() {
                    if let Some(why) = partition.wrong {
                        say!("mayfly: the partition {partition} is not used: {why}");
                    }
                }
                if table.more() > 0 {
                    say!(
                        "mayfly: {} more partitions are not used: there are too many",
                        table.more()
                    );
                }
            }
            Err(why) => say!("mayfly: the machine's disk of {mib} MiB has no partitions: {why}"),
        }
        self.table.set((table, read));
    }

    /// Reads a sector, before there are tenants.
    fn read_sector(&self, sector: u64, into: &mut [u8; SECTOR]) -> Result<(), Failed> {
        let room = self.driver.lock().disk.room(0, None);
        let slot = room.map_err(|_| Failed)?.map_err(|_| Failed)?;
        let started = self.start(slot, Operation::Read(sector, SECTOR));
        let ended = match started {
            Err(slot) => slot,
            Ok(()) => loop {
                let seen = bell().rung();
                match self.next_ended().0 {
                    Some(slot) => break slot,
                    None => bell().wait(seen, u64::MAX),
                }
            },
        };
        let result = ended.result().map(|bytes| into.copy_from_slice(bytes));
        self.give_back(ended);
        threads::preemption_point();
        result
    }
}
