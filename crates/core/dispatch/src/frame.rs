//! What a frame is. Nothing is believed of a length before it is held against the bytes that are there.

use smoltcp::wire::{
    ArpPacket, EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, TcpPacket,
    TcpSeqNumber,
};

use crate::counts::Dropped;
use crate::{Ip, Mac};

/// The bytes of an Ethernet header.
const HEAD: usize = 14;
/// The bytes of an IPv4 header without options.
const IP_HEAD: u8 = 20;

/// A frame, by what it carries.
pub(crate) enum Frame<'a> {
    Arp { from: Mac, to: Mac, packet: ArpPacket<&'a [u8]> },
    Tcp(Segment<'a>),
}

/// A TCP segment, and the frame that it is in.
pub(crate) struct Segment<'a> {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
    pub(crate) source: (Ip, u16),
    pub(crate) target: (Ip, u16),
    pub(crate) seq: u32,
    /// What it acknowledges.
    pub(crate) ack: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    /// The bytes of its data.
    pub(crate) data: u32,
    /// The bytes of its frame, without what follows its packet.
    pub(crate) frame: &'a [u8],
    packets: (Ipv4Packet<&'a [u8]>, TcpPacket<&'a [u8]>),
}

impl<'a> Frame<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let ethernet = EthernetFrame::new_checked(bytes).map_err(|_| Dropped::Malformed)?;
        let (from, to) = (ethernet.src_addr().0, ethernet.dst_addr().0);
        match ethernet.ethertype() {
            EthernetProtocol::Arp => {
                let packet =
                    ArpPacket::new_checked(ethernet.payload()).map_err(|_| Dropped::Malformed)?;
                Ok(Self::Arp { from, to, packet })
            }
            EthernetProtocol::Ipv4 => Segment::parse(bytes, from, to).map(Self::Tcp),
            _ => Err(Dropped::Protocol),
        }
    }
}

impl<'a> Segment<'a> {
    fn parse(bytes: &'a [u8], from: Mac, to: Mac) -> Result<Self, Dropped> {
        let payload = bytes.get(HEAD..).ok_or(Dropped::Malformed)?;
        let ip = Ipv4Packet::new_checked(payload).map_err(|_| Dropped::Malformed)?;
        // Not checked by the crate: a header may say that it is shorter than any.
        if ip.version() != 4 || ip.header_len() < IP_HEAD {
            return Err(Dropped::Malformed);
        }
        if ip.more_frags() || ip.frag_offset() != 0 {
            return Err(Dropped::Fragment);
        }
        if ip.next_header() != IpProtocol::Tcp {
            return Err(Dropped::Protocol);
        }
        let (head, end) = (usize::from(ip.header_len()), usize::from(ip.total_len()));
        let tcp = payload.get(head..end).ok_or(Dropped::Malformed)?;
        let tcp = TcpPacket::new_checked(tcp).map_err(|_| Dropped::Malformed)?;
        let frame = bytes.get(..HEAD + end).ok_or(Dropped::Malformed)?;
        // Not `cast_unsigned` of a difference: the crate's own numbers panic where one is behind another.
        let number = |number: TcpSeqNumber| number.0.cast_unsigned();
        Ok(Self {
            from,
            to,
            source: (ip.src_addr().octets(), tcp.src_port()),
            target: (ip.dst_addr().octets(), tcp.dst_port()),
            seq: number(tcp.seq_number()),
            ack: tcp.ack().then(|| number(tcp.ack_number())),
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            data: u32::try_from(tcp.payload().len()).map_err(|_| Dropped::Malformed)?,
            frame,
            packets: (ip, tcp),
        })
    }

    /// Whether the checksums of IP and TCP are right.
    pub(crate) fn is_right(&self) -> bool {
        let (ip, tcp) = &self.packets;
        let (source, target) = self.addresses();
        ip.verify_checksum() && tcp.verify_checksum(&source, &target)
    }

    fn addresses(&self) -> (IpAddress, IpAddress) {
        (IpAddress::Ipv4(self.source.0.into()), IpAddress::Ipv4(self.target.0.into()))
    }

    /// Whether its header of IP has options.
    pub(crate) fn has_ip_options(&self) -> bool {
        self.packets.0.header_len() > IP_HEAD
    }

    /// Writes what it acknowledges, and nothing else of it: its headers, with the number that is next, without data and
    /// flags, and with lengths and checksums that are right. Returns how many bytes that is, if there is room.
    pub(crate) fn write_acknowledgement(&self, next: u32, into: &mut [u8]) -> Option<usize> {
        let (ip, tcp) = &self.packets;
        let (head, tcp_head) = (usize::from(ip.header_len()), usize::from(tcp.header_len()));
        let len = HEAD + head + tcp_head;
        let into = into.get_mut(..len)?;
        into.copy_from_slice(self.frame.get(..len)?);
        let packet = into.get_mut(HEAD..)?;
        let mut ip = Ipv4Packet::new_unchecked(&mut *packet);
        ip.set_total_len(u16::try_from(head + tcp_head).ok()?);
        ip.fill_checksum();
        let mut tcp = TcpPacket::new_unchecked(packet.get_mut(head..)?);
        tcp.clear_flags();
        tcp.set_ack(true);
        tcp.set_urgent_at(0);
        tcp.set_seq_number(TcpSeqNumber(next.cast_signed()));
        let (source, target) = self.addresses();
        tcp.fill_checksum(&source, &target);
        Some(len)
    }

    /// The sequence number after it.
    pub(crate) fn end(&self) -> u32 {
        let flags = u32::from(self.syn) + u32::from(self.fin);
        self.seq.wrapping_add(self.data).wrapping_add(flags)
    }
}

/// Whether a card can have that address.
pub(crate) const fn is_one(mac: Mac) -> bool {
    mac[0] & 1 == 0 && !matches!(mac, [0, 0, 0, 0, 0, 0])
}

/// Whether a client can have that address: not "this network", loopback, many, or reserved (RFC 6890).
pub(crate) const fn is_client(ip: Ip) -> bool {
    !matches!(ip[0], 0 | 127 | 224..)
}
