//! The control port: a program on the other side of the machine's console asks for what the monitor does, and is told what
//! becomes of VMs ([`control`](mayfly_hypervisor::control)).
//!
//! A thread reads, refuses, and writes. Requests are done by the monitor's thread, one at a time, while it does nothing else
//! to a VM. The thread's processor time is on an account of its own: a flood takes from VMs no more than another VM would.
//!
//! **No request is lost, and no answer.** The console's thread hands over a request, and then nudges the monitor, which looks
//! for a request after it has read how often it was nudged, and before it sleeps. The monitor hands over an answer, and then
//! rings the bell of the console's thread, which reads how often it has rung before it looks for one. The same holds for
//! events.
//!
//! **An event comes before the answer to what has caused it, and when the VM has stopped** ([`Endings`]). Only the monitor
//! starts VMs: so it does not wait without an end.

use mayfly_drivers::{Broken, Change};
use mayfly_hypervisor::command::Command;
use mayfly_hypervisor::control::{
    Asked, Desk, Endings, Event, LONGEST, Locked, Name as VmName, Port, Said, Talk, Vm,
};
use mayfly_hypervisor::ending::End;
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::platform::memory::OutOfMemory;

use super::Monitor;
use crate::bare::own::console::{self, OwnConsole};
use crate::bare::processor::once::Once;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads::console::{nudge, say};
use crate::bare::threads::{self, Account, Name};

/// The most events that wait to be read.
const EVENTS: usize = 64;

/// What the monitor and the console's thread hand each other. There is none on a machine without the port.
static DESK: Once<SpinLock<Desk>> = Once::new();

/// Runs whose ends are under way.
static ENDINGS: Endings = Endings::new();

struct TheDesk(&'static SpinLock<Desk>);

impl Locked for TheDesk {
    fn with<R>(&self, work: impl FnOnce(&mut Desk) -> R) -> R {
        work(&mut self.0.lock())
    }
}

/// Starts the thread, if the machine has a console that can be used.
///
/// # Errors
///
/// [`OutOfMemory`], when there is none for its stack, or for events.
pub(super) fn start() -> Result<(), OutOfMemory> {
    let Some(console) = console::get() else { return Ok(()) };
    DESK.set(SpinLock::new(Desk::try_new(EVENTS).ok_or(OutOfMemory)?));
    let Some(desk) = DESK.get() else { return Ok(()) };
    let account = Account::apart();
    threads::spawn_for(Name::new("the control"), &account, move || {
        let broken = serve(console, &TheDesk(desk));
        say!("mayfly: the machine's console is used no more: {broken}");
        close();
    })
}

/// The port of the console, until it is broken.
struct ThePort {
    console: &'static OwnConsole,
    broken: Option<Broken>,
}

impl ThePort {
    fn unless_broken<R>(&mut self, found: Result<R, Broken>, otherwise: R) -> R {
        found.unwrap_or_else(|broken| {
            self.broken = Some(broken);
            otherwise
        })
    }
}

impl Port for ThePort {
    fn is_open(&mut self) -> bool {
        self.console.is_open()
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        let read = self.console.read(into);
        self.unless_broken(read, 0)
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        let written = self.console.write(bytes);
        self.unless_broken(written, false)
    }
}

/// Talks, until the console is broken.
fn serve(console: &'static OwnConsole, desk: &TheDesk) -> Broken {
    let mut talk = Talk::new(threads::preemption_point);
    let mut port = ThePort { console, broken: None };
    loop {
        let seen = console::bell().rung();
        if let Err(broken) = console.look() {
            return broken;
        }
        loop {
            // What has become of the port comes before what has come by it.
            let did = match console.hear() {
                Err(broken) => return broken,
                Ok(Some(Change::Other)) => true,
                Ok(Some(Change::Opened | Change::Closed)) => {
                    talk.changed();
                    true
                }
                Ok(None) => talk.turn(&mut port, desk),
            };
            if let Some(broken) = port.broken {
                return broken;
            }
            if desk.with(|desk| desk.has_asked()) {
                nudge();
            }
            threads::preemption_point();
            // From now on the console interrupts; and there may be something by now. What comes while a request is done waits,
            // and the bell rings when it is done.
            if !did && !console.listen(talk.reads()) {
                break;
            }
        }
        console::bell().wait(seen, u64::MAX);
    }
}

/// Whether there is a request for the monitor.
pub(super) fn has_asked() -> bool {
    DESK.get().is_some_and(|desk| desk.lock().has_asked())
}

/// A run of a VM ends: `over` has the VM stop, and then that is told.
pub(super) fn end(vm: &str, end: End, over: impl FnOnce()) {
    ENDINGS.end(over, || tell(vm, end));
}

fn tell(vm: &str, end: End) {
    let Some(desk) = DESK.get() else { return };
    let vm = VmName::new(vm);
    desk.lock().event(match end {
        End::OutOfMemory => Event::OutOfMemory(vm),
        End::Failed => Event::Crashed(vm),
        End::Off | End::Reset | End::Killed | End::Frozen | End::Back => Event::Ended(vm),
    });
    console::bell().ring();
}

/// From now on nothing is asked for, and nothing is kept.
pub(super) fn close() {
    let Some(desk) = DESK.get() else { return };
    let kept = desk.lock().close();
    drop(kept);
    console::bell().ring();
}

impl Monitor {
    /// Does what is asked for by the control port, if anything is.
    pub(super) fn obey_control(&mut self) {
        let Some(desk) = DESK.get() else { return };
        let asked = desk.lock().take();
        let Some(Asked { request, after }) = asked else { return };
        threads::preemption_point();
        let (id, mut line) = (request.id, [0; LONGEST + 1]);
        let (line, again) = if let Command::Stat(name) = &request.command {
            let next = match name.as_deref() {
                Some(name) => self.machines.find(name).filter(|machine| machine.number > after),
                None => self.machines.after(after),
            };
            match (next, name) {
                (Some(machine), _) => {
                    let vm = Vm {
                        name: &machine.plan.name,
                        state: machine.state(),
                        vcpus: machine.plan.vcpus,
                        memory: machine.plan.memory,
                        used: machine.frames() * PAGE_SIZE,
                        cpu: machine.account.spent().0 * 1000 / timer::frequency(),
                    };
                    let line = Said::Vm(id, vm).write(&mut line);
                    (line, Some(Asked { after: machine.number, request }))
                }
                (None, Some(name)) if after == 0 => {
                    let why = alloc::format!("there is no VM {name}");
                    (Said::Failed(id, &why).write(&mut line), None)
                }
                (None, _) => (Said::Done(id).write(&mut line), None),
            }
        } else {
            let done = self.carry_out(request.command);
            self.pass_on_until(u64::MAX, |_| ENDINGS.are_told());
            let line = match done {
                Ok(()) => Said::Done(id).write(&mut line),
                Err(why) => Said::Failed(id, &why).write(&mut line),
            };
            (line, None)
        };
        threads::preemption_point();
        let dropped = desk.lock().answer(line, again);
        drop(dropped);
        console::bell().ring();
    }
}
