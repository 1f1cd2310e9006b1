//! TCP segments of clients and of forks, with right checksums.

use mayfly_hypervisor::service::Offer;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const IP: [u8; 4] = [10, 0, 2, 15];

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// What a service is to be in these tests.
pub(crate) fn offer(forks: u16, waiting: u16) -> Offer {
    let words =
        ["ip=10.0.2.15".to_string(), format!("forks={forks}"), format!("waiting={waiting}")];
    Offer::parse(&words).unwrap().0
}

/// A segment of client `client`, or of its fork.
fn segment(client: u16, is_of_fork: bool, (seq, ack): (u32, u32), flags: u8) -> Vec<u8> {
    let (here, there) = ((MAC, IP, 80_u16), (ROUTER, [10, 0, 2, 2], 1000 + client));
    let (from, to) = if is_of_fork { (here, there) } else { (there, here) };
    let mut tcp = [&from.2.to_be_bytes()[..], &to.2.to_be_bytes()].concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = [&from.1[..], &to.1, &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo));
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend(from.1);
    ip.extend(to.1);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&to.0[..], &from.0, &[8, 0], &ip, &tcp].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// What a client sends, from its SYN on: `said` are the bytes that it has used up.
pub(crate) fn client(client: u16, said: u32, heard: u32, flags: u8) -> Vec<u8> {
    segment(client, false, (100 + said, if flags & ACK != 0 { 500 + heard } else { 0 }), flags)
}

/// What its fork sends.
pub(crate) fn fork(client: u16, said: u32, heard: u32, flags: u8) -> Vec<u8> {
    segment(client, true, (500 + said, 100 + heard), flags)
}
