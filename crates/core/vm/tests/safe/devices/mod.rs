//! A board of devices for each VM, over memory that guests of both have: their drivers do anything, and so does who owns
//! them. What belongs to one board is shown to the other, and comes when it is too late.
//!
//! Whatever is called returns, and a device that is reset works.

mod call;
mod card;
mod driver;
mod guest;

use std::sync::atomic::AtomicU64;

use mayfly_devices::cmos::{self, Cmos};
use mayfly_devices::entropy::Generator;
use mayfly_devices::memory::GuestMemory;
use mayfly_devices::pl011::Pl011;
use mayfly_devices::psci::{Core, Outcome, Psci, Refusal};
use mayfly_devices::rtc::Pl031;
use mayfly_devices::smccc::{self, Workarounds};
use mayfly_devices::uart16550::Uart16550;
use mayfly_devices::virtio::net::{Net, Packet};
use mayfly_devices::virtio::{Block, Disk, Entropy, Mmio, Served};
use mayfly_vm::memslot::Hva;
use mayfly_vm::testing::Machine;

pub(crate) use call::{Step, some};
pub(crate) use guest::DATA;

use crate::host::returns;
use card::Own;
use driver::{access, offer, serve, start};
use guest::{BYTES, Ram, Shared};

const CORES: usize = 3;
const DISK: usize = 4096;

/// Version 1, tables of descriptors, and the index by which both sides say when they want to be told.
const FEATURES: u64 = 1 << 32 | 3 << 28;

/// Fills a buffer.
type Fill = fn(&mut [u8]);

/// The devices of a VM.
pub(crate) struct Board {
    uart: Pl011,
    clock: Pl031,
    /// Those of a PC.
    ports: Uart16550,
    cmos: Cmos,
    block: Mmio<Block<Ram>>,
    entropy: Mmio<Entropy<Fill>>,
    net: Mmio<Net>,
    psci: Psci<[Core; CORES]>,
    generator: Generator,
    /// What was taken last, from any card.
    packet: Packet,
    own: Own,
}

impl Board {
    fn new(number: u8) -> Self {
        let disk = Block::new(Ram(vec![number; DISK]), "a disk").into_disk();
        Self {
            uart: Pl011::new(),
            clock: Pl031::new(),
            ports: Uart16550::new(),
            cmos: Cmos::new(),
            block: Mmio::new(Block::new(disk, "")),
            entropy: Mmio::new(Entropy::new(|bytes: &mut [u8]| bytes.fill(7))),
            net: Mmio::new(Net::new([2, 0, 0, 0, 0, number])),
            psci: Psci::new([Core::on(0), Core::off(1), Core::off(2)]),
            generator: Generator::new(&[number]),
            packet: Packet::new(),
            own: Own::default(),
        }
    }

    /// Makes `step` on the board of `vm`, with what the other one has.
    fn make(boards: &mut [Self; 2], vm: usize, step: &Step, memory: Shared<'_>) {
        assert!(returns(|| Self::call(boards, vm, step, memory)), "{step:?}");
    }

    fn call(boards: &mut [Self; 2], vm: usize, step: &Step, memory: Shared<'_>) {
        let [first, second] = boards;
        let (board, other) = if vm == 0 { (first, second) } else { (second, first) };
        match *step {
            Step::Access { device, offset, value, len, writes } => {
                let data = &mut value.to_le_bytes()[..len];
                match device {
                    0 if writes => {
                        _ = (
                            board.uart.write(offset, value as u32),
                            board.ports.write(offset, value as u8),
                        );
                    }
                    0 => {
                        let peeked = board.uart.peek(offset);
                        let is_same = board.uart.reads_change_nothing();
                        assert!(board.uart.read(offset) == peeked || !is_same);
                        let _ = board.ports.read(offset);
                    }
                    1 if writes => {
                        board.clock.write(offset, value as u32, value >> 32);
                        board.cmos.write(offset, value as u8);
                    }
                    1 => _ = (board.clock.read(offset, value), board.cmos.read(offset, value)),
                    2 => access(&mut board.block, offset, data, writes),
                    3 => access(&mut board.entropy, offset, data, writes),
                    _ => access(&mut board.net, offset, data, writes),
                }
            }
            Step::Start { device, features } => match device {
                2 => start(&mut board.block, features, &memory),
                3 => start(&mut board.entropy, features, &memory),
                _ => start(&mut board.net, features, &memory),
            },
            Step::Offer { ref descriptors, ref heads, request: (kind, sector) } => {
                let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()];
                memory.write(DATA, &header.concat()).unwrap();
                offer(&memory, descriptors, heads);
            }
            Step::Serve { device, times, misses } => {
                let memory = Shared { misses, ..memory };
                match device {
                    2 => serve(&mut board.block, times, &memory),
                    3 => serve(&mut board.entropy, times, &memory),
                    _ => serve(&mut board.net, times, &memory),
                }
                assert_eq!(board.block.device().disk().sectors(), DISK as u64 / 512);
            }
            Step::Reset { device } => match device {
                2 => board.block.reset(),
                3 => board.entropy.reset(),
                _ => board.net.reset(),
            },
            Step::Take { .. }
            | Step::GiveBack { .. }
            | Step::Tell
            | Step::Receive { .. }
            | Step::Frame { .. }
            | Step::Announce
            | Step::Link { .. }
            | Step::Room { .. } => board.call_card(&other.packet, vm, step, memory),
            Step::Input { ref bytes, breaks } => {
                assert!(board.uart.receive(bytes) <= bytes.len());
                assert!(board.ports.receive(bytes) <= bytes.len());
                let _ = board.ports.interrupt();
                let _ = (breaks && board.uart.receive_break(), board.uart.interrupt());
            }
            Step::Clock { now } => {
                board.clock.advance(now);
                let _ = cmos::second(|register| {
                    let mut cmos = board.cmos.clone();
                    cmos.write(0, register);
                    cmos.read(1, now)
                });
                let _ = (board.clock.next_alarm(now), board.clock.interrupt());
            }
            Step::Call { caller, ref arguments } => {
                let direct = board.psci.call(caller, arguments);
                if let Outcome::Start { target, .. } = direct {
                    assert!(!board.psci.is_on(target) && target < CORES);
                    assert!(board.psci.is_pending(target));
                }
                let _ = smccc::call(&board.psci, Workarounds::default(), caller, arguments);
            }
            // Of a core that is in another state, debug builds say so.
            Step::Report { core, outcome } => {
                returns(|| match outcome {
                    0 => board.psci.started(core),
                    1 => board.psci.stopped(core),
                    2 => _ = board.psci.refused(core, Refusal::Address),
                    _ => _ = board.psci.refused(core, Refusal::Resources),
                });
            }
            Step::Stir { ref bytes } => {
                board.generator.stir(bytes);
                board.generator.fill(&mut [0; 40]);
            }
        }
    }

    /// Whatever came before, a device that is reset gives random bytes to a driver that asks as it should.
    fn end(mut self, memory: Shared<'_>) {
        self.entropy.reset();
        start(&mut self.entropy, 1 << 32, &memory);
        memory.write(DATA, &[0; 32]).unwrap();
        offer(&memory, &[(DATA, 32, 2, 0)], &[0]);
        assert_eq!(self.entropy.serve(&memory), Served::One);
        let mut bytes = [0; 32];
        memory.read(DATA, &mut bytes).unwrap();
        assert_eq!((bytes, self.entropy.interrupt()), ([7; 32], true));
    }
}

/// A board for each of a program's VMs, and the memory that both have.
pub(crate) struct Boards {
    of_vms: [Board; 2],
    at: Hva,
    /// For Miri, which goes through all of a machine's frames to find a word of one.
    own: Vec<AtomicU64>,
}

impl Boards {
    pub(crate) fn new(at: Hva) -> Self {
        let own = if cfg!(miri) { BYTES / 8 } else { 0 };
        let own = (0..own).map(|_| AtomicU64::new(0)).collect();
        Self { of_vms: [0, 1].map(Board::new), at, own }
    }

    pub(crate) fn make(&mut self, vm: usize, steps: &[Step], machine: &Machine) {
        for step in steps {
            let memory = Shared::new(machine.memory(), self.at, &self.own);
            Board::make(&mut self.of_vms, vm, step, memory);
        }
    }

    pub(crate) fn end(self, machine: &Machine) {
        for board in self.of_vms {
            board.end(Shared::new(machine.memory(), self.at, &self.own));
        }
    }
}
