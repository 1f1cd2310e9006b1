//! The rules by which frames from outside go to forks, and what a fork sends goes out.

use crate::{Checker, Killer, Mutant};

const DISPATCHER: &str = "core/dispatch/src/dispatcher.rs";
const FLOW: &str = "core/dispatch/src/flow.rs";
const FRAME: &str = "core/dispatch/src/frame.rs";
const ARP: &str = "core/dispatch/src/arp.rs";

const fn test(name: &'static str) -> Killer {
    Killer::new(Checker::Test, "dispatch", ("dispatch", name), "panicked")
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a header of IP has 20 bytes at least",
        edits: &[(
            FRAME,
            "if ip.version() != 4 || ip.header_len() < IP_HEAD {",
            "if ip.version() != 4 {",
        )],
        killer: test(
            "lies::lengths_that_lie_are_malformed_and_every_beginning_of_a_frame_is_dropped",
        ),
    },
    Mutant {
        step: "a part of a packet is none",
        edits: &[(FRAME, "if ip.more_frags() || ip.frag_offset() != 0 {", "if ip.more_frags() {")],
        killer: test("lies::parts_of_packets_are_dropped"),
    },
    Mutant {
        step: "checksums of what comes from outside are right",
        edits: &[(DISPATCHER, "if !segment.is_right() {", "if false {")],
        killer: test("lies::a_bit_that_has_changed_on_the_way_is_found_wherever_it_is"),
    },
    Mutant {
        step: "an answer goes to the address that has asked",
        edits: &[(ARP, "if mac.0 != from || !is_for {", "if !is_for {")],
        killer: test("lies::whoever_asks_for_the_templates_address_is_told"),
    },
    Mutant {
        step: "a fork sends to its next hop alone",
        edits: &[(DISPATCHER, "(segment.from, segment.to) == (mac, hop)", "segment.from == mac")],
        killer: test("lies::a_fork_sends_from_its_own_address_to_its_own_client_alone"),
    },
    Mutant {
        step: "a fork sends to its own client alone",
        edits: &[(
            DISPATCHER,
            "self.table.find(Client::new(target, target_port)) == Some(flow)",
            "self.table.find(Client::new(target, target_port)).is_some()",
        )],
        killer: test("lies::a_fork_sends_nothing_of_another_flow"),
    },
    Mutant {
        step: "a fork asks for others than itself",
        edits: &[(DISPATCHER, "(mac, ip) && request.wants != ip =>", "(mac, ip) =>")],
        killer: test("lies::whatever_a_fork_asks_for_is_at_the_next_hop_of_its_flow"),
    },
    Mutant {
        step: "a SYN is given to one fork",
        edits: &[(DISPATCHER, "        state.stage = Stage::Opening;\n", "")],
        killer: test("life::a_syn_asks_for_one_fork_however_often_it_comes"),
    },
    Mutant {
        step: "there are no more flows than there may be",
        edits: &[(
            DISPATCHER,
            "        if self.live == self.config.flows {
            return Err(Dropped::Full);
        }
",
            "",
        )],
        killer: test("life::at_the_bound_a_syn_is_dropped_and_gets_its_fork_when_it_comes_again"),
    },
    Mutant {
        step: "a RST has the number that is next",
        edits: &[(FLOW, "rst.seq == self.client_next || self.acked == Some(rst.seq)", "rst.rst")],
        killer: test("life::a_rst_with_another_number_than_the_next_ends_nothing"),
    },
    Mutant {
        step: "what was never sent is not acknowledged",
        edits: &[(FLOW, "if fork.next.wrapping_sub(ack) >= WINDOW {", "if false {")],
        killer: test("life::a_flow_that_stays_half_open_ends_and_repeated_syns_do_not_prolong_it"),
    },
    Mutant {
        step: "a FIN is acknowledged by its own number",
        edits: &[(FLOW, "if *self == Self::Sent(ack) {", "if matches!(self, Self::Sent(_)) {")],
        killer: test("life::a_flow_is_over_when_its_last_acknowledgement_goes_to_its_fork"),
    },
    Mutant {
        step: "a SYN of a flow that is remembered is beyond its FIN",
        edits: &[(
            FLOW,
            "matches!(self.client_fin, Fin::Acked(fin) if reaches(syn.seq, fin))",
            "syn.syn",
        )],
        killer: test("life::a_syn_of_a_flow_that_is_remembered_wins_if_its_number_is_beyond"),
    },
    Mutant {
        step: "a flow ends at last",
        edits: &[(
            DISPATCHER,
            "now.saturating_add(timers.abandoned).min(longest)",
            "now.saturating_add(timers.abandoned)",
        )],
        killer: test("life::a_flow_ends_at_last_however_busy_it_is"),
    },
    Mutant {
        step: "the number of a flow is no other's",
        edits: &[(
            "core/dispatch/src/table.rs",
            "(taken.number == flow.number).then_some(&mut taken.state)",
            "Some(&mut taken.state)",
        )],
        killer: test("life::a_flow_that_is_over_is_not_taken_for_the_one_in_its_place"),
    },
];
