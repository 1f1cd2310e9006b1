//! What a VM needs of the machine at most: what it is guaranteed, before it starts.
//!
//! A VM needs more than its memory. Each of these is counted at its worst, in pieces of the sizes that are allocated
//! ([`chunks`](crate::chunks)):
//!
//! - the pages of its memory that are reserved for it, and the tables in which the hypervisor finds them, one for each
//!   2 MiB of all of its memory;
//! - the tables of stage 2: two roots, one for vCPUs whose caches are on and one for the others, and under each a table
//!   for each 2 MiB and each GiB of its memory, as where all of it is mapped by pages, and those of the page in which it reads
//!   the registers of its devices. Some more: one that each vCPU
//!   may hold ready, and tables that are out of use and not free yet. [`Needs::table_frames`] is their limit, which the
//!   core keeps;
//! - the stacks of its threads: of each vCPU, and of the run;
//! - heap, for what the merger knows of its pages, if they are merged;
//! - heap, for the state of the VM, of its vCPUs and devices, and the log of its console. The bound is of bytes that
//!   the allocator takes, and a VM is guaranteed twice as many ([`promises`](crate::promises)). What it takes more to be
//!   frozen it is guaranteed then, or it is not frozen;
//! - its disk at full size, with the tables in which the hypervisor finds its pages.
//!
//! Memory, the rest of a run, and the disk are a share each. So a VM that borrows memory does not use up what its
//! tables and stacks are guaranteed, and only its memory is ever above its guarantee.

use core::fmt;

use mayfly_vgic::ItsConfig;
use mayfly_vm::platform::address::PAGE_SIZE;

use crate::chunks::{CHUNK, chunks};
use crate::given::Blocks;
use crate::plan::{BLOCK, MAX_VCPUS, Plan};

/// The VMs that there is room for at a time, if memory allows for so many.
pub const MOST_VMS: usize = 2048;
/// Shares of the machine's memory that there are at most: of each VM, those of its memory, of the rest of a run, and of its
/// disk; and the hypervisor's own.
pub const MOST_SHARES: usize = 3 * MOST_VMS + 1;
/// Threads of VMs that there are at most: each that runs has two shares at least.
pub const MOST_THREADS: u64 = (MOST_SHARES as u64 - 1) / 2 * (MAX_VCPUS as u64 + THREADS);

const GIB: u64 = 1 << 30;
/// Bytes of a chunk.
pub const CHUNK_BYTES: u64 = CHUNK * PAGE_SIZE;

/// Roots of stage 2, one that two vCPUs have made at the same time included.
const ROOTS: u64 = 3;
/// Tables for the page in which a guest reads the registers of its devices, which is in no GiB of its memory: two under each of
/// two roots.
const REGISTER_TABLES: u64 = 4;
/// Tables that are out of use and not free yet.
const UNUSED_TABLES: u64 = 128;
/// Threads of a VM beside those of its vCPUs: that of the run, which is that of its devices.
const THREADS: u64 = 1;

/// Bytes of heap of a VM while it runs, without what the others count.
const HEAP: u64 = 48 << 10;
/// Bytes of heap of a disk that is a partition: its requests to the machine's disk, and the map of what is written over it.
const PARTITION_HEAP: u64 = 12 << 10;
/// Bytes of heap by which the merger knows a page, and those of a page that it may find again by its contents; of so many pages
/// of memory it finds one.
const MERGE_HEAP: u64 = 4;
const FOUND_HEAP: u64 = 36;
/// Of so many pages that are merged, the merger finds one by its contents at a time.
pub const PAGES_A_FIND: u64 = 8;
/// Bytes of heap of a vCPU.
const VCPU_HEAP: u64 = 6 << 10;
/// Bytes of heap that a VM takes beside those while it is frozen, and for each vCPU: its state is there in two forms then.
const FROZEN_HEAP: u64 = 80 << 10;
const FROZEN_VCPU_HEAP: u64 = 12 << 10;
/// Bytes of heap of a VM, whether it runs or not.
const CREATED_HEAP: u64 = 8 << 10;
/// What the ITS of a VM has, if it has one. No device of a VM sends message interrupts yet: these are enough for a guest
/// that tries them, and little enough that a vCPU looks at all of its LPIs in a few thousand instructions.
pub const ITS: ItsConfig = ItsConfig { lpis: 128, device_bits: 4, event_bits: 8 };
/// Bytes of heap of an ITS: four an event, and eight an LPI; and three times its state, which has eight for each of both: while
/// a VM is frozen there are the bytes of the state and another ITS, which is made of them, and while a fork is reset there is a
/// second one.
const ITS_HEAP: u64 =
    ((4 + 3 * 8) << (ITS.device_bits + ITS.event_bits)) + (8 + 3 * 8) * ITS.lpis as u64;
/// What is guaranteed for each byte of heap.
pub const HEAP_PIECES: u64 = 2;

/// Frames of the stack of a vCPU's thread.
pub const VCPU_STACK_FRAMES: u64 = 4;
/// Frames of the stack of a run's thread.
pub const RUN_STACK_FRAMES: u64 = 5;
/// A VM is guaranteed so many frames at least for each of its threads, with its stack and its part of the VM's tables.
pub const LEAST_THREAD_FRAMES: u64 = VCPU_STACK_FRAMES + 3;

/// Threads of VMs that there are at most, on a machine of so many frames.
pub fn threads_within(frames: u64) -> u64 {
    (frames / LEAST_THREAD_FRAMES).min(MOST_THREADS)
}

/// What a VM needs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of its memory that it is guaranteed.
    pub memory: u64,
    /// Chunks for that, and for the tables in which the hypervisor finds it.
    pub pages: u64,
    /// Chunks for the tables of stage 2 and the stacks of a run of it.
    pub run: u64,
    /// Chunks for its disk.
    pub disk: u64,
    /// Frames that the tables of stage 2 may take.
    pub table_frames: u64,
    /// Bytes of heap for a run of it.
    pub heap: u64,
    /// Bytes of heap for its disk.
    pub disk_heap: u64,
}

impl Needs {
    /// What the VM of a plan needs, whose disk has so many bytes of memory, and whose roots of stage 2 have `1 << root_order`
    /// frames, less than a chunk.
    pub fn of(plan: &Plan, disk_bytes: u64, root_order: u32) -> Self {
        let (vcpus, blocks) = (u64::from(plan.vcpus), plan.memory / BLOCK);
        let tables =
            2 * (blocks + plan.memory.div_ceil(GIB)) + REGISTER_TABLES + vcpus + UNUSED_TABLES;
        let table_frames = tables + (ROOTS << root_order);
        let memory = plan.reserved();
        let pages = chunks(memory / PAGE_SIZE + blocks, 0);
        let stacks = vcpus * VCPU_STACK_FRAMES + THREADS * RUN_STACK_FRAMES;
        let run = chunks(table_frames + stacks, 0) + chunks(ROOTS, root_order);
        let disk = chunks(disk_bytes.div_ceil(PAGE_SIZE) + disk_bytes.div_ceil(BLOCK), 0);
        // A word for each 2 MiB, and a bit.
        let words = |bytes: u64| {
            let words = bytes.div_ceil(BLOCK) as usize;
            (words * size_of::<u64>() + Blocks::heap_bytes(words)) as u64
        };
        let its = if plan.its { ITS_HEAP } else { 0 };
        let partition = if plan.partition.is_some() { PARTITION_HEAP } else { 0 };
        let merged = if plan.merge.is_some() { plan.memory / PAGE_SIZE } else { 0 };
        let merge = merged * MERGE_HEAP + merged / PAGES_A_FIND * FOUND_HEAP;
        let own = HEAP + its + partition + merge + vcpus * VCPU_HEAP;
        let heap = HEAP_PIECES * (own + words(plan.memory));
        let disk_heap = HEAP_PIECES * words(disk_bytes);
        Self { memory, pages, run, disk, table_frames, heap, disk_heap }
    }

    /// All of its chunks.
    pub fn chunks(&self) -> u64 {
        self.pages + self.run + self.disk
    }

    /// What is guaranteed for so many bytes of heap, which are those of pieces and not what the allocator takes for them: an
    /// eighth more, where the pieces have 312 bytes on average, or more.
    pub const fn of_pieces(bytes: usize) -> usize {
        HEAP_PIECES as usize * (bytes + bytes.div_ceil(8))
    }

    /// Bytes of heap that a VM needs beside, while it is frozen.
    pub fn frozen(plan: &Plan) -> u64 {
        HEAP_PIECES * (FROZEN_HEAP + u64::from(plan.vcpus) * FROZEN_VCPU_HEAP)
    }

    /// Bytes of heap that a VM needs before it runs, and after.
    pub fn created(plan: &Plan) -> u64 {
        let words = plan.name.len() + plan.arguments.len();
        HEAP_PIECES * (CREATED_HEAP + 2 * words as u64)
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |chunks: u64| (chunks * CHUNK_BYTES).div_ceil(1 << 20);
        let beside = (self.pages + self.run) * CHUNK_BYTES - self.memory;
        write!(
            f,
            "{} MiB: {} of its memory, {} of tables and stacks, {} of its disk",
            mib(self.chunks()),
            self.memory >> 20,
            beside.div_ceil(1 << 20),
            mib(self.disk),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;
    use std::vec;

    use super::*;
    use crate::account::{Account, Refused, ShareInfo};
    use crate::plan::tests::plan;

    const ROOT_ORDER: u32 = 1;

    #[test]
    fn a_gib_takes_its_pages_two_tables_for_each_2_mib_and_one_of_the_hypervisors() {
        let needs = Needs::of(&plan("memory=1G vcpus=2"), 0, ROOT_ORDER);
        assert_eq!(needs.table_frames, 2 * (512 + 1) + 4 + 2 + 128 + 6);
        assert_eq!(needs.pages, (262_144 + 512_u64).div_ceil(16));
        assert_eq!(needs.run, (1166_u64 + 2 * 4 + 5).div_ceil(16) + 1);
        assert_eq!((needs.memory, needs.disk), (1 << 30, 0));
        assert_eq!(
            needs.to_string(),
            "1031 MiB: 1024 of its memory, 7 of tables and stacks, 0 of its disk"
        );
    }

    #[test]
    fn what_is_not_reserved_is_not_guaranteed_and_its_tables_are() {
        let whole = Needs::of(&plan("memory=1G"), 0, ROOT_ORDER);
        let half = Needs::of(&plan("memory=1G overcommit=yes reserve=512M"), 0, ROOT_ORDER);
        assert_eq!(whole.pages - half.pages, (512 << 20) / CHUNK_BYTES);
        assert_eq!(whole.table_frames, half.table_frames);
        let none = Needs::of(&plan("memory=1G overcommit=yes"), 0, ROOT_ORDER);
        assert_eq!((none.memory, half.pages - none.pages), (0, (512 << 20) / CHUNK_BYTES));
    }

    #[test]
    fn each_thread_has_its_least_frames() {
        for vcpus in 1..=u64::from(MAX_VCPUS) {
            let plan = plan(&format!("memory=16M overcommit=yes vcpus={vcpus}"));
            let frames = Needs::of(&plan, 0, ROOT_ORDER).run * CHUNK;
            assert!(frames >= LEAST_THREAD_FRAMES * (vcpus + THREADS), "{vcpus}: {frames}");
        }
    }

    #[test]
    fn a_machine_has_as_many_threads_as_its_memory_and_at_most_those_of_all_vms() {
        let in_memory = |bytes: u64| threads_within(bytes / PAGE_SIZE);
        assert_eq!(in_memory(1 << 30), (1 << 18) / LEAST_THREAD_FRAMES);
        let mut shares = vec![ShareInfo::ABSENT; MOST_SHARES];
        let mut account = Account::new(&mut shares);
        let mut threads = 0;
        // Of what is guaranteed nothing: memory, and the rest of a run.
        while account.admit(0).and_then(|_| account.admit(0)).is_ok() {
            threads += u64::from(MAX_VCPUS) + THREADS;
        }
        assert_eq!(account.admit(0), Err(Refused::TooMany));
        assert_eq!(in_memory(1 << 40), threads);
        assert_eq!(in_memory(1 << 48), threads);
    }

    #[test]
    fn an_its_is_guaranteed_its_mappings_and_its_lpis_and_three_times_its_state() {
        let heap = |parameters| Needs::of(&plan(parameters), 0, ROOT_ORDER).heap;
        let (mappings, lpis, state) = (4 << (4 + 8), 8 * 128, 8 * ((1 << (4 + 8)) + 128));
        assert_eq!(heap("its=yes") - heap("its=no"), HEAP_PIECES * (mappings + lpis + 3 * state));
    }

    #[test]
    fn what_the_merger_knows_of_a_vm_is_guaranteed_with_it() {
        let heap = |parameters| Needs::of(&plan(parameters), 0, ROOT_ORDER).heap;
        let (without, with) =
            (heap("memory=64M overcommit=yes"), heap("memory=64M overcommit=yes merge=a"));
        let pages = (64 << 20) / PAGE_SIZE;
        assert_eq!(with - without, HEAP_PIECES * (4 * pages + 36 * pages / 8));
    }

    #[test]
    fn pieces_are_guaranteed_twice_what_the_allocator_takes_for_them() {
        for bytes in 312..10_000 {
            let taken = crate::promises::taken(bytes);
            assert!(Needs::of_pieces(bytes) >= HEAP_PIECES as usize * taken, "{bytes}: {taken}");
        }
    }

    #[test]
    fn a_disk_is_guaranteed_at_full_size_with_its_tables() {
        let needs = Needs::of(&plan("memory=64M overcommit=yes"), 64 << 20, ROOT_ORDER);
        assert_eq!(needs.disk, (16_384_u64 + 32).div_ceil(16));
    }
}
