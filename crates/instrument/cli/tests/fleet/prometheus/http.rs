//! As much of HTTP as a scrape and a query need: one request for each connection.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// How long a peer may say nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// Pages that are served as `OpenMetrics`, until the process ends.
pub(crate) struct Pages(SocketAddr);

impl Pages {
    pub(crate) fn serve(pages: BTreeMap<String, String>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            // A client that goes away in the middle is its own matter.
            listener.incoming().flatten().for_each(|stream| drop(answer(stream, &pages)));
        });
        Self(address)
    }

    pub(crate) fn address(&self) -> String {
        self.0.to_string()
    }
}

fn answer(stream: TcpStream, pages: &BTreeMap<String, String>) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let page = first.split(' ').nth(1).and_then(|path| pages.get(path));
    let (status, body) = page.map_or(("404 Not Found", ""), |page| ("200 OK", page));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close",
        body.len()
    );
    reader.into_inner().write_all(format!("{head}\r\n\r\n{body}").as_bytes())
}

/// The body of a page. Any answer but 200 is an error.
pub(crate) fn get(address: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(text)),
    }
}

/// A query as a part of a path.
pub(crate) fn escaped(text: &str) -> String {
    let of = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(of).collect()
}
