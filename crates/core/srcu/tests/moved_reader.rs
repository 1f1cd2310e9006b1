//! Who waits for a reader that used to be his, and is just entering elsewhere, is not taken to wait for himself.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use mayfly_platform::{Context, Host, Layer, Platform};
use mayfly_srcu::{Config, Srcu};

/// A host that takes its time to say what runs on one thread, once.
struct Slow {
    host: Host,
    slow: Mutex<Option<(thread::ThreadId, mpsc::Sender<()>)>>,
}

// SAFETY: as the host.
unsafe impl Layer for Slow {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }

    fn context(&self) -> Option<Context> {
        let here = thread::current().id();
        let slow = self.slow.lock().unwrap().take_if(|(slow, _)| *slow == here);
        if let Some((_, says)) = slow {
            says.send(()).unwrap();
            thread::sleep(Duration::from_millis(100));
        }
        self.host.context()
    }
}

#[test]
fn who_waits_while_a_reader_of_his_enters_elsewhere_is_not_found() {
    let platform = Arc::new(Slow { host: Host::new(), slow: Mutex::new(None) });
    let domain = Srcu::try_new(Arc::clone(&platform) as Arc<dyn Platform>, Config::default());
    let domain = domain.unwrap();
    let reader = domain.reader().unwrap();
    drop(reader.lock());
    let (enters, is_entering) = mpsc::channel();
    let there = thread::spawn(move || {
        *platform.slow.lock().unwrap() = Some((thread::current().id(), enters));
        drop(reader.lock());
    });
    // In a build that does not look for it nobody is asked what runs.
    let _ = is_entering.recv_timeout(Duration::from_secs(1));
    domain.synchronize();
    there.join().unwrap();
}
