//! A change with another vCPU's access in its middle.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use mayfly_machine::{Instruction, Program};
use mayfly_memslot::Gpa;
use mayfly_platform::Op;

use crate::guests::{Page, Place, Player, Slot};
use crate::steps::{Access, Change, Middle, PAGES, PAUSE, STRIDE, VCPUS, Which};
use crate::world::World;

impl World {
    /// Does `middle` in the middle of `change`, if that is promised to go well.
    pub(crate) fn beside(&mut self, change: Change, Middle { before, access, switches }: Middle) {
        let Access { vcpu, which, write } = access;
        // So that there is something to maintain, and TLBs have it.
        let written = change.about().unwrap_or(which);
        for vcpu in 0..VCPUS {
            self.access(Access { vcpu, which: written, write: true });
        }
        if let Change::Look(look) = change {
            // Nobody has it mapped, and so it is cleaned.
            self.changes(Change::Migrate(look.which));
        }
        self.number += 1;
        let page = *self.page(which);
        let base = match change {
            Change::Place(other, base) if other.is_beside(which) && self.can_place(other, base) => {
                Some(base)
            }
            _ => self.slot(which).base,
        };
        let (Some(base), Some(old)) = (base, self.slot(which).base) else { return };
        // What was there, where the slot moves onto itself: it may be written until it is zapped.
        let there = (base + which.page as u64).checked_sub(old).map(|page| page as usize);
        let there = there.filter(|&page| page < PAGES && page != which.page);
        let there = there.map(|page| Which { page, ..which });
        let others = there.map(|there| *self.page(there));
        let Some(player) = self.vms[which.vm].players[vcpu].take_if(|player| {
            let write = if switches { player.on } else { write };
            let promises = |page: Page| {
                [Place::Both, player.side()].contains(&page.place) && !(write && page.read_only)
            };
            promises(page)
                && others.is_none_or(|other| !switches && write && promises(other))
                && !change.forbids(Access { write, ..access })
                // What it writes may come before or after the switch.
                && !(switches && matches!(change, Change::Merge(..)))
        }) else {
            return self.changes(change);
        };
        let side = player.side();
        let write = if switches { player.on } else { write };
        let gpa = Gpa::new(base * STRIDE + Slot::offset(which.page));
        let mut program = vec![if write {
            Instruction::Touch { gpa, len: 1, value: self.number }
        } else {
            Instruction::Verify { gpa, len: 1, value: page.value }
        }];
        if switches {
            let turn = self.turn(!player.on);
            let at = usize::from(player.on);
            program.splice(at..at, turn);
        }
        let player = self.arm(before, player, program);
        self.beside.extend(there.into_iter().chain([which]));
        self.changes(change);
        self.beside.clear();
        // If nobody came to the moment.
        let left = self.armed.lock().unwrap().take();
        if let Some((_, begin)) = left {
            begin();
        }
        let mut player = player.recv().unwrap();
        player.on ^= switches;
        self.vms[which.vm].players[vcpu] = Some(player);
        let number = self.number;
        let slot = self.slot(which);
        slot.maps_around(which.page);
        if write {
            // It may be flushed once between its fault and the write.
            self.past += 2 * u64::from(side == Place::Memory);
            // Once it is zapped, the host finds whatever a guest has written there.
            if let Some(there) = there
                && self.machine.space().read_u64(self.hva(there)) == Ok(number)
            {
                let page = self.page(there);
                (page.value, page.logged) = (number, true);
                return;
            }
            let page = self.page(which);
            (page.place, page.value, page.logged) = (side, number, true);
        }
        if switches {
            self.agree(which.vm, Place::Memory);
            if side == Place::Cache {
                self.agree(which.vm, Place::Cache);
            }
        }
    }

    /// How a guest turns its caches on, or off.
    pub(crate) fn turn(&self, on: bool) -> Program {
        let prepares = (!on && !self.nature.fgt).then_some(Instruction::SetWay);
        prepares.into_iter().chain([Instruction::Caches(on)]).collect()
    }

    /// Has `player` do that, on a thread of its own, just before or after the next maintenance, which goes on when it
    /// is done, or a fault was refused and waits. Gives the player back.
    pub(crate) fn arm(&self, before: bool, mut player: Player, does: Program) -> Receiver<Player> {
        let (give, back) = channel();
        let hardware = Arc::clone(self.machine.hardware());
        let begin = Box::new(move || {
            let refused = hardware.charged(Op::FaultRefused);
            let running = thread::spawn(move || {
                player.run(does);
                let _ = give.send(player);
            });
            let begun = Instant::now();
            while !running.is_finished()
                && hardware.charged(Op::FaultRefused) == refused
                && begun.elapsed() < PAUSE
            {
                thread::yield_now();
            }
        });
        *self.armed.lock().unwrap() = Some((before, begin));
        back
    }
}
