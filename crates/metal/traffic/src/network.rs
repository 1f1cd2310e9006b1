//! Requests and bulk between two guests, on one TCP connection each, of which nothing is held back (`TCP_NODELAY`).
//!
//! Who asks sends a head of two numbers of eight bytes: how many bytes a request has, and how many requests there are. Each is
//! answered by as many bytes. No requests is bulk: so many bytes come, and are answered by one.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Bytes that bulk is sent and taken by.
const PIECE: usize = 64 << 10;

/// The most bytes of a request.
pub const MOST: u64 = 64 << 10;

/// Answers one connection after the other, for good. What fails in one ends it, and no other.
///
/// # Errors
///
/// Of the listener.
pub fn answer(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (connection, _) = listener.accept()?;
        if let Err(error) = answer_one(connection) {
            println!("guest: a connection has failed: {error}");
        }
    }
}

fn answer_one(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (bytes, count) = (number(&mut connection)?, number(&mut connection)?);
    if count == 0 {
        take(&mut connection, bytes)?;
        return connection.write_all(&[1]);
    }
    let mut request = room(bytes)?;
    for _ in 0..count {
        connection.read_exact(&mut request)?;
        connection.write_all(&request)?;
    }
    Ok(())
}

fn number(connection: &mut TcpStream) -> io::Result<u64> {
    let mut bytes = [0; 8];
    connection.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Room for a request.
fn room(bytes: u64) -> io::Result<Vec<u8>> {
    let fits = usize::try_from(bytes).ok().filter(|_| bytes <= MOST);
    let bytes = fits.ok_or_else(|| io::Error::other(format!("a request of {bytes} bytes")))?;
    Ok(vec![0; bytes])
}

/// Takes so many bytes.
fn take(connection: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let (mut piece, mut left) = (vec![0; PIECE], bytes);
    while left > 0 {
        let most = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        match connection.read(&mut piece[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            taken => left -= taken as u64,
        }
    }
    Ok(())
}

fn connect(to: SocketAddr, bytes: u64, count: u64) -> io::Result<TcpStream> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_nodelay(true)?;
    let mut head = [0; 16];
    head[..8].copy_from_slice(&bytes.to_le_bytes());
    head[8..].copy_from_slice(&count.to_le_bytes());
    connection.write_all(&head)?;
    Ok(connection)
}

/// Sends so many bytes and waits for as many, `count` times.
///
/// # Errors
///
/// Of the connection, and if an answer is not what was sent.
pub fn ask(to: SocketAddr, bytes: u64, count: u64) -> io::Result<()> {
    let (mut request, mut answer) = (room(bytes)?, room(bytes)?);
    let mut connection = connect(to, bytes, count)?;
    for number in 0..count {
        request.fill(number as u8);
        connection.write_all(&request)?;
        connection.read_exact(&mut answer)?;
        if answer != request {
            return Err(io::Error::other(format!("answer {number} is not what was sent")));
        }
    }
    Ok(())
}

/// Sends so many bytes, and waits until all have arrived.
///
/// # Errors
///
/// Of the connection.
pub fn send(to: SocketAddr, bytes: u64) -> io::Result<()> {
    let mut connection = connect(to, bytes, 0)?;
    let (piece, mut left) = (vec![0x5a; PIECE], bytes);
    while left > 0 {
        let most = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        connection.write_all(&piece[..most])?;
        left -= most as u64;
    }
    connection.read_exact(&mut [0])
}
