//! The client, against servers that answer as they should, and servers that do not; and the server, against clients.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use mayfly_requests::answer::answer;
use mayfly_requests::ask::{Failure, Load, Outcome, run};

/// Has a server do something with each connection, which it knows by its number, from 1 on. Returns its port.
fn server(each: impl Fn(TcpStream, u64) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let number = AtomicU64::new(0);
        thread::scope(|scope| {
            for connection in listener.incoming() {
                let number = number.fetch_add(1, Ordering::Relaxed) + 1;
                let each = &each;
                scope.spawn(move || each(connection.unwrap(), number));
            }
        });
    });
    port
}

/// One that reads the request, and writes these bytes.
fn says(answer: impl Fn(u64) -> String + Send + Sync + 'static) -> u16 {
    server(move |mut connection, number| {
        let _ = connection.read(&mut [0; 1024]);
        let _ = connection.write_all(answer(number).as_bytes());
    })
}

fn right(number: u64) -> String {
    let body = mayfly_requests::body(number);
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn load(port: u16, count: u64, at_once: u32) -> Load {
    Load { port, count, at_once, patience: Duration::from_secs(60) }
}

fn ask(port: u16, count: u64, at_once: u32) -> Outcome {
    run(&load(port, count, at_once)).unwrap()
}

/// That all of four fail, and why.
fn fails(port: u16, why: Failure) {
    let outcome = ask(port, 4, 2);
    assert_eq!(outcome.failures, [(why, 4)].into(), "{outcome}");
    assert!(outcome.times.is_empty());
}

#[test]
fn every_request_is_answered_once_however_many_are_asked_at_a_time() {
    for at_once in [1, 7, 64] {
        let port = server(|connection, number| answer(connection, || number).unwrap());
        let outcome = ask(port, 200, at_once);
        assert_eq!((outcome.times.len(), outcome.failed()), (200, 0), "{outcome}");
        assert!(outcome.times.is_sorted());
        assert!(
            outcome
                .to_string()
                .starts_with(&format!("200 answered, 0 failed, {at_once} at a time\nan"))
        );
    }
}

#[test]
fn no_more_are_asked_at_a_time_than_are_said() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    static MOST: AtomicU64 = AtomicU64::new(0);
    let port = server(|connection, number| {
        MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Taken away before the answer is there, which lets the client ask again.
        let _ = answer(connection, || {
            NOW.fetch_sub(1, Ordering::SeqCst);
            number
        });
    });
    let outcome = ask(port, 100, 3);
    assert_eq!(outcome.failed(), 0, "{outcome}");
    assert!(MOST.load(Ordering::SeqCst) <= 3);
}

#[test]
fn what_is_no_answer_fails_and_it_is_said_why() {
    fails(says(|_| String::new()), Failure::Short);
    fails(says(|number| right(number)[..20].to_owned()), Failure::Short);
    fails(says(|number| right(number).trim_end().to_owned()), Failure::Short);
    fails(says(|number| right(number) + &right(number + 100)), Failure::Long);
    fails(says(|number| right(number) + "\n"), Failure::Long);
    fails(says(|number| right(number).replace("200 OK", "500 Broken")), Failure::Status);
    fails(says(|number| right(number).replace("HTTP", "SMTP")), Failure::Malformed);
    fails(says(|number| right(number).replace("Length: ", "Length: x")), Failure::Malformed);
    fails(says(|_| "HTTP/1.1 200 OK\r\n\r\nfork seven answers\n".into()), Failure::NoNumber);
    // Without a length, what is missing is missing from what it says.
    fails(says(|_| "HTTP/1.1 200 OK\r\n\r\nfork 7 answ".into()), Failure::NoNumber);
    fails(says(|_| right(0)), Failure::NoFork);
    fails(says(|_| "x".repeat(100 << 10)), Failure::Long);
}

#[test]
fn a_fork_that_answers_two_requests_fails_the_second() {
    let outcome = ask(says(|number| right(number / 2 + 1)), 9, 3);
    // Of 1, 2, 2, 3, 3, 4, 4, 5, 5.
    assert_eq!(outcome.failures, [(Failure::Again, 4)].into(), "{outcome}");
    assert_eq!(outcome.times.len(), 5);
}

#[test]
fn some_that_fail_are_told_apart_from_those_that_are_answered() {
    let port = says(|number| match number % 4 {
        0 => String::new(),
        1 => right(number).replace("200", "404"),
        _ => right(number),
    });
    let outcome = ask(port, 40, 4);
    assert_eq!(outcome.failures, [(Failure::Short, 10), (Failure::Status, 10)].into());
    let said = outcome.to_string();
    assert!(said.starts_with("20 answered, 20 failed, 4 at a time\n"), "{said}");
    assert!(said.ends_with(
        "\n10 failed: closed before the answer was whole\n10 failed: a status other than 200"
    ));
}

#[test]
fn where_nobody_listens_nothing_is_connected() {
    // A port of a service that nobody has any more (RFC 1078), and that is given to nobody who asks for any.
    fails(1, Failure::NotConnected);
}

#[test]
fn a_server_that_is_silent_or_never_ends_is_late() {
    let silent = server(|mut connection, _| {
        let _ = connection.read(&mut [0; 1024]);
        // Until the client has gone.
        while connection.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
    });
    let slow = server(|mut connection, _| {
        while connection.write_all(b"H").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    for port in [silent, slow] {
        let load = Load { patience: Duration::from_millis(300), ..load(port, 2, 2) };
        let outcome = run(&load).unwrap();
        assert!(
            outcome.failures.keys().all(|why| matches!(why, Failure::Late | Failure::Malformed)),
            "{outcome}"
        );
        assert_eq!(outcome.failed(), 2);
    }
}

#[test]
fn the_program_ends_with_what_became_of_the_requests() {
    let asks = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_mayfly-asks")).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let good = says(right).to_string();
    let (code, said) = asks(&[&good, "10", "2"]);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("10 answered, 0 failed, 2 at a time\n"), "{said}");
    let bad = says(|_| String::new()).to_string();
    assert_eq!(asks(&[&bad, "3", "1", "60"]).0, Some(1));
    for wrong in
        [&["1"][..], &["x", "1", "1"], &["1", "1", "0"], &["1", "1", "1025"], &["1", "1", "1", "0"]]
    {
        assert_eq!(asks(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn the_server_answers_what_is_cut_in_pieces_and_refuses_what_is_no_request() {
    let port = server(|connection, number| drop(answer(connection, || number)));
    let exchange = |parts: &[&[u8]]| {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        connection.set_nodelay(true).unwrap();
        for part in parts {
            let _ = connection.write_all(part);
        }
        let _ = connection.shutdown(Shutdown::Write);
        let mut said = String::new();
        let _ = connection.read_to_string(&mut said);
        said
    };
    let parts: Vec<_> = b"GET / HTTP/1.0\r\nA: b\r\n\r\n".chunks(1).collect();
    assert!(exchange(&parts).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(exchange(&[b"POST / HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 405 "));
    assert!(exchange(&[b"\0\0\0\0"]).starts_with("HTTP/1.1 400 "));
    assert_eq!(exchange(&[b"GET / HT"]), "", "it has hung up");
    // It is still there.
    assert!(exchange(&[b"GET / HTTP/1.0\r\n\r\n"]).starts_with("HTTP/1.1 200 OK\r\n"));
}
