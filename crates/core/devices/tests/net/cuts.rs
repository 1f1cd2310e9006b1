//! Checksums, and segments that are cut, beside a naive model: what is received adds up to what was sent, and each frame is
//! one that the network takes.

use mayfly_devices::memory::BadAddress;
use mayfly_devices::virtio::net::{Checksum, Family, Offload, Segments, Source, finish};
use proptest::prelude::*;

struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        let from = offset as usize;
        into.copy_from_slice(&self.0[from..from + into.len()]);
        Ok(())
    }
}

/// The frames that a frame comes to.
fn finished(bytes: &[u8], offload: Offload) -> Result<Vec<Vec<u8>>, ()> {
    let source = Bytes(bytes.to_vec());
    let mut frames = Vec::new();
    let done = finish(bytes.len() as u64, &offload, &source, |frame| {
        let rest = &bytes[frame.rest.start as usize..frame.rest.end as usize];
        assert_eq!(frame.len() as usize, frame.head.len() + rest.len());
        assert_eq!(frame.offload, Offload::default());
        frames.push([frame.head, rest].concat());
        true
    });
    done.map(|()| frames).map_err(|_| ())
}

/// The Internet's sum, a word at a time.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    words.fold(0_u32, |sum, word| (sum + word) % 0xffff) as u16
}

/// What the pseudo-header of a TCP segment sums up to.
fn pseudo(ip: &[u8], family: Family, len: usize) -> u16 {
    let addresses = if family == Family::V4 { &ip[12..20] } else { &ip[8..40] };
    sum(&[addresses, &[0, 6], &(len as u32).to_be_bytes()].concat())
}

/// A TCP segment with so many bytes of data, as a guest leaves it to its device.
fn segment(
    family: Family,
    tagged: bool,
    options: (usize, usize),
    data: &[u8],
    flags: u8,
) -> (Vec<u8>, usize) {
    let mut frame = vec![0x11; 12];
    if tagged {
        frame.extend([0x81, 0, 0, 5]);
    }
    let tcp_len = 20 + 4 * options.1;
    let ip = match family {
        Family::V4 => {
            frame.extend([8, 0]);
            let words = 5 + options.0;
            let mut ip = vec![0x45; 4 * words];
            ip[0] = 0x40 | words as u8;
            ip[4..8].copy_from_slice(&[0xff, 0xfe, 0x40, 0]);
            ip[9..12].copy_from_slice(&[6, 0xde, 0xad]);
            ip
        }
        Family::V6 => {
            frame.extend([0x86, 0xdd]);
            let mut ip = vec![0x66; 40];
            ip[6] = 6;
            ip
        }
    };
    frame.extend(&ip);
    let tcp = frame.len();
    let mut header = vec![0x77; tcp_len];
    header[4..8].copy_from_slice(&[0xff, 0xff, 0xff, 0x00]);
    header[12] = ((tcp_len / 4) as u8) << 4;
    header[13] = flags;
    let part = pseudo(&ip, family, tcp_len + data.len());
    header[16..18].copy_from_slice(&part.to_be_bytes());
    frame.extend(&header);
    frame.extend(data);
    (frame, tcp)
}

fn offload(family: Family, tcp: usize, size: u16) -> Offload {
    Offload {
        checksum: Some(Checksum { start: tcp as u16, offset: 16 }),
        segments: Some(Segments { family, size, headers: 0 }),
    }
}

#[test]
fn a_frame_of_which_nothing_is_left_to_do_stays_as_it_is() {
    let bytes: Vec<u8> = (0..200).collect();
    assert_eq!(finished(&bytes, Offload::default()), Ok(vec![bytes]));
}

#[test]
fn what_is_not_the_header_that_it_says_is_malformed() {
    let (frame, tcp) = segment(Family::V4, false, (0, 0), &[1; 3000], 0x10);
    assert!(finished(&frame, offload(Family::V4, tcp, 1000)).is_ok());
    assert!(finished(&frame, offload(Family::V6, tcp, 1000)).is_err(), "another version");
    assert!(finished(&frame, offload(Family::V4, tcp + 2, 1000)).is_err(), "another place");
    assert!(finished(&frame, offload(Family::V4, tcp, 1500)).is_err(), "longer than the network's");
    assert!(finished(&frame[..40], offload(Family::V4, tcp, 1000)).is_err(), "cut short");
    for (at, value) in [(12, 9), (14, 0x44), (20, 0x20), (21, 1), (23, 17), (46, 0x40)] {
        let mut wrong = frame.clone();
        wrong[at] = value;
        assert!(finished(&wrong, offload(Family::V4, tcp, 1000)).is_err(), "byte {at}");
    }
    let far = Offload { checksum: Some(Checksum { start: 300, offset: 0 }), segments: None };
    assert!(finished(&frame, far).is_err());
}

proptest! {
    #[test]
    fn a_checksum_makes_all_sum_up_to_nothing(
        bytes in prop::collection::vec(any::<u8>(), 60..1518),
        start in 14..40_u16,
        offset in 0..20_u16,
    ) {
        let checksum = Some(Checksum { start, offset });
        let frames = finished(&bytes, Offload { checksum, segments: None }).unwrap();
        prop_assert_eq!(frames.len(), 1);
        let field = usize::from(start + offset);
        // The field holds what the pseudo-header sums up to: with the complement there instead, all sums up to that less.
        let before = sum(&bytes[usize::from(start)..]);
        let mut after = frames[0].clone();
        let value = u16::from_be_bytes([after[field], after[field + 1]]);
        prop_assert_eq!((u32::from(value) + u32::from(before)) % 0xffff, 0);
        prop_assert!(value != 0);
        after[field..field + 2].copy_from_slice(&bytes[field..field + 2]);
        prop_assert_eq!(after, bytes);
    }

    #[test]
    fn segments_add_up_to_what_was_cut(
        (four, tagged, ip_options, tcp_options) in (any::<bool>(), any::<bool>(), 0..11_usize, 0..11_usize),
        data in prop::collection::vec(any::<u8>(), 0..20_000),
        size in 32..1300_u16,
        flags in any::<u8>(),
    ) {
        let family = if four { Family::V4 } else { Family::V6 };
        let (frame, tcp) = segment(family, tagged, (ip_options, tcp_options), &data, flags);
        let frames = finished(&frame, offload(family, tcp, size)).unwrap();
        prop_assert_eq!(frames.len(), data.len().div_ceil(size.into()).max(1));
        let ip = if tagged { 18 } else { 14 };
        let head = frame.len() - data.len();
        let mut all: Vec<u8> = Vec::new();
        for (index, one) in frames.iter().enumerate() {
            let is_last = index + 1 == frames.len();
            prop_assert!(one.len() <= 1518);
            prop_assert_eq!(&one[..ip], &frame[..ip]);
            let tcp_len = one.len() - tcp;
            if four {
                let number = |at: usize| u16::from_be_bytes([one[at], one[at + 1]]);
                prop_assert_eq!(usize::from(number(ip + 2)), one.len() - ip);
                prop_assert_eq!(number(ip + 4), 0xfffe_u16.wrapping_add(index as u16));
                prop_assert_eq!(sum(&one[ip..tcp]), 0);
            } else {
                prop_assert_eq!(&one[ip + 4..ip + 6], &(tcp_len as u16).to_be_bytes());
            }
            let total = u32::from(pseudo(&one[ip..tcp], family, tcp_len)) + u32::from(sum(&one[tcp..]));
            prop_assert_eq!(total % 0xffff, 0);
            let sequence = u32::from_be_bytes(one[tcp + 4..tcp + 8].try_into().unwrap());
            prop_assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(all.len() as u32));
            let kept = flags & if is_last { 0xff } else { !0x09 } & if index == 0 { 0xff } else { !0x80 };
            prop_assert_eq!(one[tcp + 13], kept);
            all.extend(&one[head..]);
        }
        prop_assert_eq!(all, data);
    }
}
