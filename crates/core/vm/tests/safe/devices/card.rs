//! Calls on a network card, with its own packets and with another's.

use mayfly_devices::virtio::net::{self, Frame, Offload, Packet};

use super::guest::Shared;
use super::{Board, Step};

/// A frame of the program's own, of which it says what it likes.
#[derive(Default)]
pub(super) struct Own {
    head: Vec<u8>,
    rest: (u64, u64),
    offload: Offload,
}

impl Board {
    /// Makes `step`, which is of a card, on the one of `vm`. `others` is what the other card has taken.
    pub(super) fn call_card(
        &mut self,
        others: &Packet,
        vm: usize,
        step: &Step,
        memory: Shared<'_>,
    ) {
        match *step {
            Step::Take { misses } => {
                let memory = Shared { misses, ..memory };
                let _ = self.net.take(&mut self.packet, &memory);
            }
            Step::GiveBack { from, untold } => {
                let packet = if from == vm { &self.packet } else { others };
                if untold {
                    self.net.give_back_untold(packet, &memory);
                } else {
                    self.net.give_back(packet, &memory);
                }
            }
            Step::Tell => {
                let is_told = self.net.is_untold();
                self.net.tell_of_frames();
                assert!(!self.net.is_untold());
                assert!(!is_told || self.net.interrupt_status() & 1 != 0);
            }
            Step::Receive { from, finishes } => {
                let packet = if from == vm { &self.packet } else { others };
                let Ok(offload) = packet.offload() else { return };
                assert!(packet.len() > 0 && self.net.device().mac()[0] == 2);
                let source = packet.in_memory(&memory);
                let receive = |frame: &Frame<'_>| {
                    assert!(frame.len() > 0);
                    self.net.accepts(&frame.offload)
                        && self.net.receive(0, frame, &source, &memory).is_ok()
                };
                let mut receive = receive;
                if finishes {
                    let _ = net::finish(packet.len(), &offload, &source, receive);
                } else {
                    let head = &packet.head()[..];
                    receive(&Frame { head, rest: head.len() as u64..packet.len(), offload });
                }
            }
            Step::Frame { ref head, rest, offload } => {
                self.own = Own { head: head.clone(), rest, offload };
                self.send_own(&memory);
            }
            Step::Announce => self.net.announce(),
            Step::Link { is_up } => self.net.set_link(is_up),
            Step::Room { pieces } => {
                let mut room = vec![(0, 0); pieces];
                assert!(self.net.next_room(&mut room, &memory) <= pieces);
                assert!(self.net.rings().count() <= 6);
            }
            _ => unreachable!("it is made elsewhere"),
        }
    }

    /// The program's own frame goes to its card, as it is and finished, with the last packet for the bytes that it has not.
    fn send_own(&mut self, memory: &Shared<'_>) {
        let Own { head, rest: (begin, end), offload } = &self.own;
        let frame = Frame { head, rest: *begin..*end, offload: *offload };
        let source = self.packet.in_memory(memory);
        let _ = self.net.receive(1, &frame, &source, memory);
        let mut count = 0;
        let _ = net::finish(*end, offload, &source, |_| {
            count += 1;
            count < 100
        });
        assert!(count <= 100);
    }
}
