//! A machine in QEMU, and its lives.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, bail};
use mayfly_power_cuts::{Disk, Served, serve};
use mayfly_qemu::Running;

use crate::console::Console;

/// How often it is looked whether QEMU has come.
const LOOK: Duration = Duration::from_millis(5);

/// What became of a life, and what its guest has said.
pub(crate) struct Lived {
    pub(crate) served: Served,
    pub(crate) console: Console,
}

pub(crate) struct Machine<'a> {
    /// QEMU and its arguments.
    pub(crate) command: &'a [String],
    /// Where the server's socket is.
    pub(crate) scratch: &'a Path,
}

impl Machine<'_> {
    /// Starts the machine, and stops it after so many changes of its disk.
    pub(crate) fn live(
        &self,
        disk: &mut Disk,
        said: u64,
        life: u64,
        changes: u64,
        patience: Duration,
    ) -> anyhow::Result<Lived> {
        let socket = self.scratch.join("disk");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        let path = socket.to_str().context("the path of the socket is no text")?;
        let mut words = self.command.iter().map(|word| {
            let word = word.replace("{disk}", path).replace("{said}", &said.to_string());
            word.replace("{life}", &life.to_string())
        });
        let program = words.next().context("there is no QEMU")?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| self.command[0].clone())?;
        let said = child.stdout.take().context("QEMU has no output")?;
        let mut qemu = Running(child);
        thread::scope(|scope| {
            let console = scope.spawn(move || Console::read(said));
            let served = connect(&listener, &mut qemu.0, patience).and_then(|stream| {
                let (receiver, ends) = (stream.try_clone()?, stream.try_clone()?);
                let hang_up = || {
                    // What runs on meanwhile finds that its disk does not answer.
                    let _ = qemu.0.kill();
                    let _ = ends.shutdown(Shutdown::Both);
                };
                let served = serve(stream, receiver, hang_up, disk, changes, patience);
                served.context("the disk")
            });
            // Its console ends with it.
            drop(qemu);
            let console = console.join().unwrap_or_default();
            let served = served.inspect_err(|_| console.show())?;
            Ok(Lived { served, console })
        })
    }
}

fn connect(
    listener: &UnixListener,
    qemu: &mut Child,
    patience: Duration,
) -> anyhow::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let began = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false)?;
            return Ok(stream);
        }
        if let Some(status) = qemu.try_wait()? {
            bail!("QEMU has ended before it had its disk: {status}");
        }
        if began.elapsed() > patience {
            bail!("QEMU does not come for its disk");
        }
        thread::sleep(LOOK);
    }
}
