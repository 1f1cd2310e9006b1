//! The server's side of the network block device protocol: the fixed newstyle handshake, and simple replies
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>).

use std::io::{self, Read, Write};

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// The longest option that is answered: a name has 4,096 bytes at most.
const MOST_OPTION: u32 = 8192;

mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
}

mod reply {
    pub(super) const ACK: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(super) const INVALID: u32 = 1 << 31 | 3;
}

mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const BLOCK_SIZE: u16 = 3;
}

/// It has flags; and flushes, discards and zeroes.
const FLAGS: u16 = 1 | 1 << 2 | 1 << 5 | 1 << 6;

const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
/// The most bytes of a request, as the protocol has it for a client that was told of no other bound.
pub const MOST: u32 = 32 << 20;

/// An error in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request makes no sense.
    Invalid = 22,
}

/// What a client asks for. Places and lengths are in bytes, and not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// To read so many bytes from there on.
    Read(u64, u32),
    /// To write these there.
    Write(u64, Vec<u8>),
    /// To make durable what was written.
    Flush,
    /// That so many bytes from there on are used no more.
    Discard(u64, u32),
    /// That so many bytes from there on be zero.
    Zero(u64, u32),
    /// Something that no server of these features knows.
    Unknown,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's name for it.
    pub cookie: u64,
    /// What it asks for.
    pub command: Command,
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn number<const BYTES: usize>(from: &mut impl Read) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    from.read_exact(&mut bytes).map(|()| bytes)
}

fn word(from: &mut impl Read) -> io::Result<u32> {
    number(from).map(u32::from_be_bytes)
}

fn long(from: &mut impl Read) -> io::Result<u64> {
    number(from).map(u64::from_be_bytes)
}

/// Agrees with a client on a disk of so many bytes, whatever name the client has for it. Returns whether it goes on to
/// requests.
///
/// # Errors
///
/// The stream's, and [`io::ErrorKind::InvalidData`] where it does not speak the protocol.
pub fn greet(stream: &mut (impl Read + Write), bytes: u64) -> io::Result<bool> {
    stream.write_all(b"NBDMAGICIHAVEOPT")?;
    stream.write_all(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes())?;
    let flags = word(stream)?;
    if flags & u32::from(FIXED_NEWSTYLE) == 0 {
        return Err(nonsense("the client does not know the fixed newstyle handshake"));
    }
    loop {
        if long(stream)? != OPTION {
            return Err(nonsense("this is no option"));
        }
        let (kind, len) = (word(stream)?, word(stream)?);
        if len > MOST_OPTION {
            return Err(nonsense("an option is too long"));
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match kind {
            option::EXPORT_NAME => {
                stream.write_all(&bytes.to_be_bytes())?;
                stream.write_all(&FLAGS.to_be_bytes())?;
                if flags & u32::from(NO_ZEROES) == 0 {
                    stream.write_all(&[0; 124])?;
                }
                return Ok(true);
            }
            option::ABORT => {
                answer_option(stream, kind, reply::ACK, &[])?;
                return Ok(false);
            }
            option::LIST if data.is_empty() => {
                // One without a name.
                answer_option(stream, kind, reply::SERVER, &[0; 4])?;
                answer_option(stream, kind, reply::ACK, &[])?;
            }
            option::INFO | option::GO if is_of_an_export(&data) => {
                let mut export = info::EXPORT.to_be_bytes().to_vec();
                export.extend(bytes.to_be_bytes());
                export.extend(FLAGS.to_be_bytes());
                answer_option(stream, kind, reply::INFO, &export)?;
                // The least, what is best, and the most.
                let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
                sizes.extend([512, 4096, MOST].iter().flat_map(|size| size.to_be_bytes()));
                answer_option(stream, kind, reply::INFO, &sizes)?;
                answer_option(stream, kind, reply::ACK, &[])?;
                if kind == option::GO {
                    return Ok(true);
                }
            }
            option::LIST | option::INFO | option::GO => {
                answer_option(stream, kind, reply::INVALID, &[])?;
            }
            _ => answer_option(stream, kind, reply::UNSUPPORTED, &[])?,
        }
    }
}

/// Whether this is the length of a name, a name, the number of infos that are wanted, and these.
fn is_of_an_export(mut data: &[u8]) -> bool {
    let mut take = |count: usize| data.split_off(..count);
    let Some(name) = take(4).and_then(|len| len.try_into().ok()).map(u32::from_be_bytes) else {
        return false;
    };
    if take(name as usize).is_none() {
        return false;
    }
    let wanted = take(2).and_then(|count| count.try_into().ok()).map(u16::from_be_bytes);
    wanted.is_some_and(|count| take(2 * usize::from(count)).is_some()) && data.is_empty()
}

fn answer_option(stream: &mut impl Write, kind: u32, answer: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = OPTION_REPLY.to_be_bytes().to_vec();
    bytes.extend([kind, answer, data.len() as u32].iter().flat_map(|word| word.to_be_bytes()));
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// The next request; none, where the client is gone, or says that it goes.
///
/// # Errors
///
/// The stream's, and [`io::ErrorKind::InvalidData`] where it does not speak the protocol.
pub fn next_request(stream: &mut impl Read) -> io::Result<Option<Request>> {
    match word(stream) {
        Ok(REQUEST) => {}
        Ok(_) => return Err(nonsense("this is no request")),
        Err(gone) if gone.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let _flags: [u8; 2] = number(stream)?;
    let kind = u16::from_be_bytes(number(stream)?);
    let (cookie, offset, len) = (long(stream)?, long(stream)?, word(stream)?);
    let command = match kind {
        0 | 1 if len > MOST => return Err(nonsense("a request is too long")),
        0 => Command::Read(offset, len),
        1 => {
            let mut bytes = vec![0; len as usize];
            stream.read_exact(&mut bytes)?;
            Command::Write(offset, bytes)
        }
        2 => return Ok(None),
        3 => Command::Flush,
        4 => Command::Discard(offset, len),
        6 => Command::Zero(offset, len),
        _ => Command::Unknown,
    };
    Ok(Some(Request { cookie, command }))
}

/// Answers a request, with what was read.
///
/// # Errors
///
/// The stream's.
pub fn answer(
    stream: &mut impl Write,
    cookie: u64,
    result: Result<&[u8], Refusal>,
) -> io::Result<()> {
    let mut bytes = SIMPLE_REPLY.to_be_bytes().to_vec();
    bytes.extend(result.err().map_or(0, |refusal| refusal as u32).to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(result.unwrap_or_default());
    stream.write_all(&bytes)
}
