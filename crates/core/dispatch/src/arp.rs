//! What the dispatcher says of addresses: to the outside, that the template's IP address is at its MAC; to a fork, that
//! whatever it looks for is at the next hop of its flow.

use smoltcp::wire::{
    ArpHardware, ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame,
    EthernetProtocol, EthernetRepr,
};

use crate::counts::Dropped;
use crate::{Ip, Mac};

/// The bytes of the shortest frame, without its checksum: its end is zero.
pub(crate) const ANSWER: usize = 60;

const BROADCAST: Mac = [0xff; 6];

/// A request, of whom.
pub(crate) struct Request {
    pub(crate) mac: Mac,
    pub(crate) ip: Ip,
    pub(crate) wants: Ip,
}

/// The request that an ARP packet is, if it came from the card that it says, for `own` or for all.
pub(crate) fn request(
    (from, to): (Mac, Mac),
    packet: &ArpPacket<&[u8]>,
    own: Option<Mac>,
) -> Result<Request, Dropped> {
    let is_ipv4 = packet.hardware_type() == ArpHardware::Ethernet
        && packet.protocol_type() == EthernetProtocol::Ipv4
        && (packet.hardware_len(), packet.protocol_len()) == (6, 4);
    if !is_ipv4 {
        return Err(Dropped::Arp);
    }
    let Ok(ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: mac,
        source_protocol_addr: ip,
        target_protocol_addr: wants,
        ..
    }) = ArpRepr::parse(packet)
    else {
        return Err(Dropped::Arp);
    };
    let is_for = to == BROADCAST || own.is_none_or(|own| own == to);
    if mac.0 != from || !is_for {
        return Err(Dropped::Arp);
    }
    Ok(Request { mac: mac.0, ip: ip.octets(), wants: wants.octets() })
}

/// The answer that what a request looks for is at `mac`.
pub(crate) fn answer(request: &Request, mac: Mac, into: &mut [u8; ANSWER]) {
    into.fill(0);
    let (here, there) = (EthernetAddress(mac), EthernetAddress(request.mac));
    let mut frame = EthernetFrame::new_unchecked(&mut into[..]);
    EthernetRepr { src_addr: here, dst_addr: there, ethertype: EthernetProtocol::Arp }
        .emit(&mut frame);
    let answer = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: here,
        source_protocol_addr: request.wants.into(),
        target_hardware_addr: there,
        target_protocol_addr: request.ip.into(),
    };
    answer.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
}
