//! Does in a guest what is counted, and prints nothing unless it fails.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

use mayfly_traffic::{disk, network};

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::Error::other(format!("'{text}' was not expected")))
}

fn run(words: &[&str]) -> io::Result<()> {
    match *words {
        ["write", device, count] => disk::write(Path::new(device), number(count)?),
        ["read", device, count] => disk::read(Path::new(device), number(count)?),
        ["answers", port] => {
            network::answer(&TcpListener::bind((Ipv4Addr::UNSPECIFIED, number(port)?))?)
        }
        ["asks", to, bytes, count] => network::ask(number(to)?, number(bytes)?, number(count)?),
        ["sends", to, bytes] => network::send(number(to)?, number(bytes)?),
        _ => Err(io::Error::other("usage: mayfly-traffic write|read|answers|asks|sends ...")),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Err(error) = run(&words) else { return ExitCode::SUCCESS };
    eprintln!("guest: FAILED: {}: {error}", words.join(" "));
    ExitCode::FAILURE
}
