//! Frames, written byte by byte.

use mayfly_dispatch::{Config, Ip, Mac, Timers};

pub(crate) const TEMPLATE: Mac = [2, 0, 0, 0, 0, 1];
pub(crate) const ROUTER: Mac = [2, 0, 0, 0, 0xee, 9];
pub(crate) const IP: Ip = [10, 0, 2, 15];
pub(crate) const PORT: u16 = 80;

/// In nanoseconds, and small: 100 half open, 1,000 abandoned, 5,000 at most, 200 remembered.
pub(crate) const TIMERS: Timers =
    Timers { half_open: 100, abandoned: 1_000, longest: 5_000, remembered: 200 };

pub(crate) fn config(flows: u16, remembered: u16) -> Config {
    Config { mac: TEMPLATE, ip: IP, port: PORT, flows, remembered, timers: TIMERS }
}

/// A TCP segment in a frame, and how the frame is wrong, if it is.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
    pub(crate) source: (Ip, u16),
    pub(crate) target: (Ip, u16),
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) data: Vec<u8>,
    /// Options of IP and of TCP, each a multiple of four bytes.
    pub(crate) options: (Vec<u8>, Vec<u8>),
    /// The flags and the offset of a fragment.
    pub(crate) fragment: u16,
    pub(crate) protocol: u8,
}

/// From a client, by its number.
pub(crate) fn client(number: u8) -> Tcp {
    Tcp {
        from: ROUTER,
        to: TEMPLATE,
        source: ([192, 0, 2, 1 + number / 2], 5_000 + u16::from(number % 2)),
        target: (IP, PORT),
        seq: 0,
        ack: None,
        syn: false,
        fin: false,
        rst: false,
        data: Vec::new(),
        options: (Vec::new(), Vec::new()),
        fragment: 0x4000,
        protocol: 6,
    }
}

/// From the fork of a client.
pub(crate) fn fork(number: u8) -> Tcp {
    let client = client(number);
    Tcp { from: client.to, to: client.from, source: client.target, target: client.source, ..client }
}

impl Tcp {
    pub(crate) fn seq(self, seq: u32) -> Self {
        Self { seq, ..self }
    }

    pub(crate) fn ack(self, ack: u32) -> Self {
        Self { ack: Some(ack), ..self }
    }

    pub(crate) fn syn(self) -> Self {
        Self { syn: true, ..self }
    }

    pub(crate) fn fin(self) -> Self {
        Self { fin: true, ..self }
    }

    pub(crate) fn rst(self) -> Self {
        Self { rst: true, ..self }
    }

    pub(crate) fn data(self, count: usize) -> Self {
        Self { data: vec![0x5a; count], ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (ip_options, tcp_options) = &self.options;
        let mut tcp = Vec::new();
        tcp.extend(self.source.1.to_be_bytes());
        tcp.extend(self.target.1.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.unwrap_or(0).to_be_bytes());
        let flags = u8::from(self.fin)
            | u8::from(self.syn) << 1
            | u8::from(self.rst) << 2
            | u8::from(self.ack.is_some()) << 4;
        tcp.extend([((20 + tcp_options.len()) as u8 / 4) << 4, flags, 0x20, 0, 0, 0, 0, 0]);
        tcp.extend(tcp_options);
        tcp.extend(&self.data);
        let mut pseudo = Vec::new();
        pseudo.extend(self.source.0);
        pseudo.extend(self.target.0);
        pseudo.extend([0, self.protocol]);
        pseudo.extend((tcp.len() as u16).to_be_bytes());
        pseudo.extend(&tcp);
        tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());

        let head = 20 + ip_options.len();
        let mut ip = vec![0x40 | (head / 4) as u8, 0];
        ip.extend(((head + tcp.len()) as u16).to_be_bytes());
        ip.extend([0, 1]);
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([64, self.protocol, 0, 0]);
        ip.extend(self.source.0);
        ip.extend(self.target.0);
        ip.extend(ip_options);
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());

        let mut frame = Vec::new();
        frame.extend(self.to);
        frame.extend(self.from);
        frame.extend([8, 0]);
        frame.extend(ip);
        frame.extend(tcp);
        frame
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An ARP packet for Ethernet and IPv4, in a frame.
pub(crate) fn arp(
    operation: u8,
    (from, to): (Mac, Mac),
    sender: (Mac, Ip),
    target: (Mac, Ip),
) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(to);
    frame.extend(from);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(sender.0);
    frame.extend(sender.1);
    frame.extend(target.0);
    frame.extend(target.1);
    frame.resize(60, 0);
    frame
}
