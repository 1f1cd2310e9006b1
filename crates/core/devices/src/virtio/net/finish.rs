//! What a sender has left to its device, done in software for a receiver that does not do it: checksums, and the cutting
//! of a TCP segment into those that the network takes (RFC 9293, 3.1; RFC 791, 3.1; RFC 8200, 3).

use core::ops::Range;

use super::header::{BadPacket, Checksum, Family, Offload, Segments};
use super::{Frame, MOST_FRAME, Source};

/// The most bytes of headers, up to the end of a checksum.
const MOST_HEAD: usize = 256;
/// Bytes that are summed up at a time.
const PIECE: usize = 512;

const VLAN: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
/// Where in a TCP header its checksum is.
const TCP_CHECKSUM: u16 = 16;
/// In IPv4: more fragments follow, or this is not the first.
const FRAGMENT: u16 = 0x3fff;
/// `FIN` and `PSH`, which the last segment has; `CWR`, which the first has.
const OF_LAST: u8 = 0x09;
const OF_FIRST: u8 = 0x80;

/// Calls `each` with the frames that a frame of `len` bytes comes to, of which nothing is left to be done: one, or those
/// that it is cut into, as long as `each` says that there is use for more.
///
/// # Errors
///
/// [`BadPacket`]: its headers are not those of what is to be done, or cannot be read. Some frames may have been made.
pub fn finish(
    len: u64,
    offload: &Offload,
    source: &impl Source,
    mut each: impl FnMut(&Frame<'_>) -> bool,
) -> Result<(), BadPacket> {
    let mut head = [0; MOST_HEAD];
    let Some(checksum) = offload.checksum else {
        each(&finished(&[], 0..len));
        return Ok(());
    };
    let Some(segments) = offload.segments else {
        let Checksum { start, offset } = checksum;
        let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
        let head = head.get_mut(..field + 2).ok_or(BadPacket)?;
        read(source, 0, head)?;
        let mut sum = Sum::default();
        sum.add(&head[start..]);
        sum.add_source(source, &(head.len() as u64..len))?;
        head[field..].copy_from_slice(&sum.finish());
        each(&finished(head, field as u64 + 2..len));
        return Ok(());
    };
    let cut = Cut::new(len, segments, checksum, source, &mut head)?;
    let size = u64::from(segments.size);
    for index in 0..(len - cut.data).div_ceil(size).max(1) {
        let begin = cut.data + index * size;
        let data = begin..len.min(begin + size);
        let frame = cut.frame(&head, index, &data, data.end == len, source)?;
        if !each(&finished(&frame[..cut.data as usize], data)) {
            break;
        }
    }
    Ok(())
}

const fn finished(head: &[u8], rest: Range<u64>) -> Frame<'_> {
    Frame { head, rest, offload: Offload { checksum: None, segments: None } }
}

fn read(source: &impl Source, offset: u64, into: &mut [u8]) -> Result<(), BadPacket> {
    source.read(offset, into).map_err(|_| BadPacket)
}

fn number(bytes: &[u8], at: usize) -> Result<u16, BadPacket> {
    let pair = bytes.get(at..at + 2).ok_or(BadPacket)?;
    Ok(u16::from_be_bytes([pair[0], pair[1]]))
}

fn put(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

/// A TCP segment that is to be cut.
struct Cut {
    family: Family,
    /// Where the header of IP begins, that of TCP, and the data.
    ip: usize,
    tcp: usize,
    data: u64,
}

impl Cut {
    /// Reads the headers of a frame of `len` bytes into `head`, and looks where they are.
    fn new(
        len: u64,
        segments: Segments,
        checksum: Checksum,
        source: &impl Source,
        head: &mut [u8; MOST_HEAD],
    ) -> Result<Self, BadPacket> {
        let there = len.min(MOST_HEAD as u64) as usize;
        let head = &mut head[..there];
        read(source, 0, head)?;
        let (ip, kind) = match number(head, 12)? {
            VLAN => (18, number(head, 16)?),
            kind => (14, kind),
        };
        let byte = |at: usize| head.get(at).copied().ok_or(BadPacket);
        let (tcp, protocol) = match (segments.family, kind) {
            (Family::V4, IPV4) => {
                let words = usize::from(byte(ip)? & 0xf);
                // A fragment is not to be cut: more of it follow, or have come before.
                let is_fragment = number(head, ip + 6)? & FRAGMENT != 0;
                if words < 5 || is_fragment {
                    return Err(BadPacket);
                }
                (ip + 4 * words, byte(ip + 9)?)
            }
            (Family::V6, IPV6) => (ip + 40, byte(ip + 6)?),
            _ => return Err(BadPacket),
        };
        let words = byte(tcp + 12)? >> 4;
        let data = tcp + 4 * usize::from(words);
        let fits = data <= there && data as u64 + u64::from(segments.size) <= MOST_FRAME;
        let is_its = usize::from(checksum.start) == tcp && checksum.offset == TCP_CHECKSUM;
        if protocol != TCP || words < 5 || !fits || !is_its {
            return Err(BadPacket);
        }
        Ok(Self { family: segments.family, ip, tcp, data: data as u64 })
    }

    /// The headers of segment `index`, which has these bytes of the frame as its data.
    fn frame(
        &self,
        head: &[u8; MOST_HEAD],
        index: u64,
        bytes: &Range<u64>,
        is_last: bool,
        source: &impl Source,
    ) -> Result<[u8; MOST_HEAD], BadPacket> {
        let Self { family, ip, tcp, data } = *self;
        let end = data as usize;
        let mut head = *head;
        let sequence = u32::from_be_bytes([4, 5, 6, 7].map(|at| head[tcp + at]));
        let sequence = sequence.wrapping_add((bytes.start - data) as u32);
        head[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        let keeps = !(if is_last { 0 } else { OF_LAST } | if index == 0 { 0 } else { OF_FIRST });
        head[tcp + 13] &= keeps;
        // No frame is longer than the network's, so lengths fit.
        let tcp_len = (data - tcp as u64 + bytes.end - bytes.start) as u16;
        let mut sum = Sum::default();
        match family {
            Family::V4 => {
                put(&mut head, ip + 2, tcp_len + (tcp - ip) as u16);
                // As Linux numbers what it cuts: from the uncut one's number on.
                let identification = number(&head, ip + 4)?.wrapping_add(index as u16);
                put(&mut head, ip + 4, identification);
                put(&mut head, ip + 10, 0);
                let mut own = Sum::default();
                own.add(&head[ip..tcp]);
                head[ip + 10..ip + 12].copy_from_slice(&own.finish());
                sum.add(&head[ip + 12..ip + 20]);
            }
            Family::V6 => {
                put(&mut head, ip + 4, tcp_len);
                sum.add(&head[ip + 8..ip + 40]);
            }
        }
        sum.add(&[0, TCP]);
        sum.add(&tcp_len.to_be_bytes());
        let field = tcp + usize::from(TCP_CHECKSUM);
        put(&mut head, field, 0);
        sum.add(&head[tcp..end]);
        sum.add_source(source, bytes)?;
        head[field..field + 2].copy_from_slice(&sum.finish());
        Ok(head)
    }
}

/// The sum of the Internet's checksums (RFC 1071), of pieces that follow each other.
#[derive(Default)]
struct Sum {
    total: u64,
    /// An odd number of bytes was added.
    is_odd: bool,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.is_odd
            && let [first, rest @ ..] = bytes
        {
            self.total += u64::from(*first);
            (self.is_odd, bytes) = (false, rest);
        }
        let pairs = bytes.chunks_exact(2);
        if let [last] = pairs.remainder() {
            self.total += u64::from(*last) << 8;
            self.is_odd = true;
        }
        self.total += pairs.map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1])).sum::<u64>();
    }

    fn add_source(&mut self, source: &impl Source, range: &Range<u64>) -> Result<(), BadPacket> {
        let mut piece = [0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let now = (range.end - at).min(PIECE as u64) as usize;
            read(source, at, &mut piece[..now])?;
            self.add(&piece[..now]);
            at += now as u64;
        }
        Ok(())
    }

    /// The checksum. Zero would mean to UDP that there is none, and is sent as what is equal to it.
    fn finish(self) -> [u8; 2] {
        let mut total = self.total;
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        match !(total as u16) {
            0 => [0xff; 2],
            sum => sum.to_be_bytes(),
        }
    }
}
