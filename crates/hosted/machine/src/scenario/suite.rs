//! Scenarios in which one thing happens after the other.

use mayfly_memslot::{Flags, Hva, SlotId};
use mayfly_platform::address::PAGE_SIZE;
use mayfly_platform::cache::{CacheCapabilities, InstructionCaches};
use mayfly_stage2::Format;
use mayfly_vm::SlotZap;

use super::play::{Play, Scenario};
use super::played::Failure;
use super::stage::{Conditions, OFF, ON, SET_WAY, Stage, read, write};

/// Processors that leave everything to the core.
pub(super) const NONE: Conditions = Conditions {
    capabilities: CacheCapabilities { instructions: InstructionCaches::Virtual, fgt: false },
    slot_zap: SlotZap::Range,
};
/// Those on which turning caches off is always seen.
pub(super) const FGT: Conditions =
    Conditions { capabilities: CacheCapabilities { fgt: true, ..NONE.capabilities }, ..NONE };
/// A VM whose roots are all replaced where a slot goes.
const ALL_ROOTS: Conditions = Conditions { slot_zap: SlotZap::AllRoots, ..NONE };

pub(super) const SCENARIOS: [Scenario; 15] = [
    Scenario {
        name: "vcpu-0-comes-later",
        relies_on: "whichever vCPU is first finds what it wrote before its caches were on",
        machine: NONE,
        play: Play::Usual(vcpu_0_comes_later),
    },
    Scenario {
        name: "own-writes",
        relies_on: "a secondary vCPU finds what it wrote before its caches were on",
        machine: NONE,
        play: Play::Usual(own_writes),
    },
    Scenario {
        name: "anothers-writes",
        relies_on: "when its caches are on, others find what a vCPU wrote before",
        machine: NONE,
        play: Play::Usual(anothers_writes),
    },
    Scenario {
        name: "others-still-off",
        relies_on: "a vCPU that goes on with its caches off is not forgotten when another turns its on",
        machine: NONE,
        play: Play::Usual(others_still_off),
    },
    Scenario {
        name: "off-again",
        relies_on: "with its caches off again, as for kexec, a vCPU finds what was written with them on",
        machine: FGT,
        play: Play::Usual(off_again),
    },
    Scenario {
        name: "anothers-off",
        relies_on: "what a vCPU wrote with its caches off is not forgotten when another turns its off",
        machine: FGT,
        play: Play::Usual(anothers_off),
    },
    Scenario {
        name: "set-way",
        relies_on: "maintenance by set and way, and then caches off and on, as older kernels do for kexec",
        machine: NONE,
        play: Play::Usual(set_way),
    },
    Scenario {
        name: "hotplug",
        relies_on: "a vCPU that is taken away and comes back is as good as a new one",
        machine: NONE,
        play: Play::Usual(hotplug),
    },
    Scenario {
        name: "page-mapped-between",
        relies_on: "what the VMM put into a page is there for a vCPU with its caches off, and nothing else",
        machine: NONE,
        play: Play::Usual(page_mapped_between),
    },
    Scenario {
        name: "page-moved-and-swapped",
        relies_on: "what was written with caches off is still there when the host has moved the page",
        machine: NONE,
        play: Play::Usual(page_moved_and_swapped),
    },
    Scenario {
        name: "page-shared-and-broken",
        relies_on: "what was written with caches off is in both when the host shares a page and somebody writes",
        machine: NONE,
        play: Play::Usual(page_shared_and_broken),
    },
    Scenario {
        name: "slot-comes-back",
        relies_on: "what was written with caches off is still there when a slot was deleted and created again",
        machine: NONE,
        play: Play::Usual(slot_comes_back),
    },
    Scenario {
        name: "roots-replaced",
        relies_on: "what was written with caches off is still there when all tables went with the slot",
        machine: ALL_ROOTS,
        play: Play::Usual(slot_comes_back),
    },
    Scenario {
        name: "log-harvested",
        relies_on: "what was written with caches off is found whoever else looks for written pages",
        machine: NONE,
        play: Play::Usual(log_harvested),
    },
    Scenario {
        name: "fwb",
        relies_on: "processors that force write-back need nothing of all this",
        machine: NONE,
        play: Play::Forced(own_writes),
    },
];

fn vcpu_0_comes_later(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.vcpu(1)?.does([write(0, 10), ON, read(0, 10)])?;
    stage.vcpu(0)?.does([write(1, 11), ON, read(1, 11), read(0, 10)])
}

fn own_writes<F: Format>(stage: &Stage<'_, F>) -> Result<(), Failure> {
    stage.vcpu(0)?.does([write(0, 20), ON, read(0, 20)])?;
    stage.vcpu(1)?.does([write(1, 21), write(2, 22), ON, read(1, 21), read(2, 22)])
}

fn anothers_writes(stage: &Stage<'_>) -> Result<(), Failure> {
    let mut boot = stage.vcpu(0)?;
    boot.does([write(0, 30), ON, read(1, 0)])?;
    stage.vcpu(1)?.does([write(1, 31), ON])?;
    boot.does([read(1, 31)])
}

fn others_still_off(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut first, mut second) = (stage.vcpu(0)?, stage.vcpu(1)?);
    second.does([write(1, 40)])?;
    first.does([ON, read(1, 40)])?;
    second.does([read(1, 40), write(1, 41), ON, read(1, 41)])?;
    first.does([read(1, 41)])
}

fn off_again(stage: &Stage<'_>) -> Result<(), Failure> {
    let mut boot = stage.vcpu(0)?;
    boot.does([write(0, 50), ON])?;
    let mut crashed = stage.vcpu(1)?;
    crashed.does([read(1, 0), read(2, 0), ON, write(1, 51)])?;
    boot.does([write(2, 52)])?;
    crashed.does([OFF, read(1, 51), read(2, 52), write(1, 53), ON, read(1, 53)])
}

fn anothers_off(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut boot, mut waiting) = (stage.vcpu(0)?, stage.vcpu(1)?);
    boot.does([write(0, 55), ON])?;
    waiting.does([write(1, 56)])?;
    boot.does([OFF, read(1, 56)])?;
    waiting.does([ON, read(1, 56), read(0, 55)])
}

fn set_way(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut boot, mut waiting) = (stage.vcpu(0)?, stage.vcpu(1)?);
    waiting.does([read(1, 0), write(2, 60)])?;
    boot.does([write(0, 61), ON, write(1, 62), write(3, 63), SET_WAY, read(2, 60)])?;
    waiting.does([read(1, 62)])?;
    boot.does([OFF, read(3, 63), write(3, 64), ON, read(3, 64)])
}

fn hotplug(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.vcpu(0)?.does([write(0, 70), ON])?;
    stage.vcpu(1)?.does([write(1, 71), ON, read(1, 71)])?;
    // This one is taken away before it has turned its caches on.
    stage.vcpu(1)?.does([write(1, 72), write(2, 73), read(1, 72)])?;
    stage.vcpu(1)?.does([read(2, 73), write(1, 74), ON, read(1, 74), read(2, 73)])
}

fn page_mapped_between(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut boot, mut waiting) = (stage.vcpu(0)?, stage.vcpu(1)?);
    waiting.does([write(0, 80)])?;
    boot.does([write(1, 81), ON])?;
    stage.host_writes(2, 82);
    waiting.does([read(2, 82), read(3, 0), write(2, 83), ON, read(2, 83), read(0, 80)])?;
    boot.does([read(2, 83)])
}

fn page_moved_and_swapped(stage: &Stage<'_>) -> Result<(), Failure> {
    let mut vcpu = stage.vcpu(0)?;
    vcpu.does([write(1, 90), write(2, 91)])?;
    stage.about_to_unmap(1)?;
    if !stage.machine.space().migrate(stage.hva(1))? {
        return Err("there was no page to move".into());
    }
    stage.about_to_unmap(2)?;
    if !stage.machine.space().reclaim(stage.hva(2)) {
        return Err("there was no page to swap out".into());
    }
    vcpu.does([read(1, 90), read(2, 91), write(1, 92), ON, read(1, 92), read(2, 91)])
}

fn page_shared_and_broken(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut boot, mut vcpu) = (stage.vcpu(0)?, stage.vcpu(1)?);
    stage.host_writes(2, 131);
    boot.does([write(0, 130), ON, read(1, 0), read(2, 131)])?;
    vcpu.does([write(1, 132), read(2, 131)])?;
    let mut copies = Vec::new();
    for page in [1, 2] {
        stage.about_to_unmap(page)?;
        let end = Hva::new(stage.hva(page).get() + PAGE_SIZE);
        copies.push(stage.machine.space().fork(stage.hva(page)..end)?);
    }
    // One is broken by the guest, the other by the VMM, under the guest.
    vcpu.does([read(1, 132), write(1, 133)])?;
    stage.host_writes(2, 131);
    vcpu.does([read(2, 131), ON, read(1, 133)])?;
    boot.does([read(1, 133), read(2, 131)])?;
    stage.host_reads(1, copies[0], 132)?;
    stage.host_reads(2, copies[1], 131)
}

fn slot_comes_back(stage: &Stage<'_>) -> Result<(), Failure> {
    let mut vcpu = stage.vcpu(0)?;
    vcpu.does([write(1, 100)])?;
    stage.about_to_unmap(1)?;
    stage.set_slot(Flags::empty(), 0)?;
    stage.set_slot(Flags::empty(), stage.memory.size())?;
    vcpu.does([read(1, 100), write(2, 101), ON, read(1, 100), read(2, 101)])
}

fn log_harvested(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.set_slot(Flags::LOG_DIRTY_PAGES, stage.memory.size())?;
    let mut vcpu = stage.vcpu(0)?;
    vcpu.does([write(1, 110)])?;
    let mut marks = vec![0; (stage.memory.size() >> 12).div_ceil(64) as usize];
    if stage.vm.harvest_dirty(SlotId::main(0), 0, &mut marks)? != 1 {
        return Err("one page was written".into());
    }
    vcpu.does([ON, read(1, 110)])
}
