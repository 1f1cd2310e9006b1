//! The server: one connection after the other.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The most bytes of a request.
const MOST: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// How long a client may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers every connection, by the number that there is then. What goes wrong with one ends that one.
pub fn serve(listener: &TcpListener, number: impl Fn() -> u64) -> ! {
    loop {
        if let Ok((connection, _)) = listener.accept() {
            let _ = answer(connection, &number);
        }
    }
}

/// Answers one connection.
///
/// # Errors
///
/// Why it could not be read or written.
pub fn answer(mut connection: TcpStream, number: impl Fn() -> u64) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match request(&mut connection)? {
        Request::Get => ("200 OK", crate::body(number())),
        Request::Other => ("405 Method Not Allowed", String::new()),
        Request::Wrong => ("400 Bad Request", String::new()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // In one piece, so that it is one packet.
    connection.write_all((head + &body).as_bytes())
}

enum Request {
    Get,
    Other,
    Wrong,
}

fn request(connection: &mut TcpStream) -> io::Result<Request> {
    let (mut bytes, mut len) = ([0; MOST], 0);
    while len < MOST {
        let count = connection.read(&mut bytes[len..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        len += count;
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes[..len]) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) if request.method == Some("GET") => {
                return Ok(Request::Get);
            }
            Ok(httparse::Status::Complete(_)) => return Ok(Request::Other),
            Err(_) => return Ok(Request::Wrong),
        }
    }
    Ok(Request::Wrong)
}
