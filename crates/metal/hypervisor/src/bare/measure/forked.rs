//! A VM that is frozen, and forks that go on as it was: made, reset and ended of the parts, and in the order, of other
//! forks ([`vm`](crate::bare::vm)). They have no threads of their own, and no shares of the machine's memory.
//!
//! What is not inlined is so for the thread's stack, which has not room for all at once.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::{iter, slice};

use mayfly_hypervisor::plan::Plan;
use mayfly_lifecycle_steps::course::{self, Counter as _, Vcpu as _};
use mayfly_lifecycle_steps::forked::{
    Life, Request, answers_again, begins, count_wrong, fill, quiet,
};
use mayfly_lifecycle_steps::guest::{MEMORY, Order};
use mayfly_lifecycle_steps::large::Mapping;
use mayfly_lifecycle_steps::{Row, times};
use mayfly_vm::memslot::Hva;
use mayfly_vm::{Reason, Vcpu, Vm};

use super::counted::{Counter, Moment};
use super::guest::{Obedient, seat};
use super::parts::{NO_MEMORY, NO_VM, Outcome, create, machine, memory, plan, slot, vcpu, worlds};
use crate::bare::devices::arch::SerialPort;
use crate::bare::devices::uart::Uart;
use crate::bare::vm::arch::{Model, Stopped, generation, save};
use crate::bare::vm::buses;
use crate::bare::vm::{Hearing, Host, Kinds, Origin, Run, TableFormat, Template};
use crate::bare::world::memory::GuestMemory;

const BYTES: u64 = times::FORKED_BYTES;

const NOT_KEPT: &str = "a VM cannot be frozen";

#[inline(never)]
pub(super) fn forks<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let plan = plan(BYTES, 1);
    let template = freeze(host, &plan, counter)?;
    let frozen = Frozen { host, plan, template };
    for life in Life::ALL {
        quiet(counter)?;
        frozen.live(life, counter)?;
    }
    Ok(())
}

/// What a guest leaves that has its caches on and has asked for an order.
#[inline(never)]
fn freeze<F: TableFormat>(host: &Host<F>, plan: &Plan, counter: &mut Counter) -> Outcome<Template> {
    let memory = memory(host, BYTES, Mapping::Blocks)?;
    fill(|at, bytes| memory.write(at, bytes)).map_err(|_| NO_MEMORY)?;
    let (vm, run) = (create(host, &memory)?, machine(host, &memory, 1)?);
    slot(&vm, 0, MEMORY, BYTES)?;
    let (begun, stopped) = run_to_rest(&vm, &run, counter)?;
    // What was written past the caches is in memory when this is over, and no entry is left.
    drop(vm.invalidate_start(Hva::new(0), BYTES, Reason::Unmap));
    vm.destroy();
    let bytes = memory.heap_bytes();
    let model = keep(plan, &run, &stopped)?;
    let template = Template::try_new((memory, bytes), None, model).ok_or(NOT_KEPT)?;
    drop(run);
    counter.done(Row::ForkFrozen, 1, &begun)?;
    Ok(template)
}

/// Runs the guest until it is as forks are to begin. Returns when it begins to be frozen.
#[inline(never)]
fn run_to_rest<F: TableFormat>(
    vm: &Vm<Kinds<F>>,
    run: &Run,
    counter: &mut Counter,
) -> Outcome<(Moment, Arc<Stopped>)> {
    let seat = seat(run, 0)?;
    let mut vcpu = Obedient::new(run, &seat, vcpu(vm, 0)?);
    vcpu.run()?;
    vcpu.obey(Order::Caches, 1)?;
    quiet(counter)?;
    course::asked(&mut vcpu, counter)?;
    let begun = counter.now()?;
    Ok((begun, Arc::new(vcpu.freeze()?)))
}

/// What a run was beside its memory.
#[inline(never)]
fn keep(plan: &Plan, run: &Run, stopped: &Arc<Stopped>) -> Outcome<Model> {
    let (console, count) = (run.uart.stop(), run.chipset.virtual_count());
    let (vcpus, caches) = (slice::from_ref(stopped), iter::once(stopped.caches));
    let state = save(plan, &run.chipset, &run.devices, &console, vcpus, count);
    Model::load(plan, &state.map_err(|_| NOT_KEPT)?, caches, None).map_err(|_| NOT_KEPT)
}

/// What forks go on as.
struct Frozen<'a, F: TableFormat> {
    host: &'a Host<F>,
    plan: Plan,
    template: Template,
}

/// A fork without its vCPU.
struct Body<F: TableFormat> {
    memory: Arc<GuestMemory>,
    uart: Arc<Uart>,
    run: Box<Run>,
    vm: Vm<Kinds<F>>,
}

impl<F: TableFormat> Frozen<'_, F> {
    fn live(&self, life: Life, counter: &mut Counter) -> Outcome<()> {
        let begun = counter.now()?;
        let mut body = self.fork()?;
        let mut core = vcpu(&body.vm, 0)?;
        let mut left = self.begin(life, begun, &body, &mut core, counter)?;
        if let Some(request) = life.request() {
            self.go_back(&mut body)?;
            left = self.answer_again(life, request, left, &body, &mut core, counter)?;
        }
        drop(core);
        body.end();
        life.ended().map_or(Ok(()), |row| counter.done(row, 1, &left))
    }

    /// Counts what a fork does until it goes back or ends. Returns the moment at which its vCPU leaves its run.
    #[inline(never)]
    fn begin(
        &self,
        life: Life,
        mut begun: Moment,
        body: &Body<F>,
        core: &mut Vcpu<Kinds<F>>,
        counter: &mut Counter,
    ) -> Outcome<Moment> {
        let seat = seat(&body.run, 0)?;
        let mut vcpu = Obedient::without_registers(&body.run, &seat, core);
        if life == Life::Registers {
            begun = counter.now()?;
        }
        vcpu.be_as_it_was()?;
        begins(life, &begun, &mut vcpu, counter)?;
        if life.request().is_some() {
            self.check(life, &body.memory, life.pages())?;
        }
        counter.now()
    }

    /// Counts what a fork does that goes back since the moment `left`. Returns the moment at which its vCPU leaves its run.
    #[inline(never)]
    fn answer_again(
        &self,
        life: Life,
        request: Request,
        left: Moment,
        body: &Body<F>,
        core: &mut Vcpu<Kinds<F>>,
        counter: &mut Counter,
    ) -> Outcome<Moment> {
        let seat = seat(&body.run, 0)?;
        let mut vcpu = Obedient::without_registers(&body.run, &seat, core);
        vcpu.be_as_it_was()?;
        if let Some(row) = life.reset() {
            counter.done(row, 1, &left)?;
        }
        self.check(life, &body.memory, 0)?;
        answers_again(life, request, &mut vcpu, counter)?;
        self.check(life, &body.memory, request.pages)?;
        counter.now()
    }

    /// A fork, as [`Host::run`] makes one.
    #[inline(never)]
    fn fork(&self) -> Outcome<Body<F>> {
        let Self { host, plan, template } = self;
        let memory = GuestMemory::try_new(host.world.clone(), BYTES).map_err(|_| NO_MEMORY)?;
        let memory = Arc::new(memory.over(Arc::clone(&template.memory)));
        let uart = Arc::new(Uart::new(&plan.name));
        let worlds = worlds(host);
        let (run, console) = self.resume(&uart, &memory, Origin::Made(&worlds.run, None, None))?;
        let vm = create(host, &memory)?;
        slot(&vm, 0, MEMORY, BYTES)?;
        buses::fill(&vm, &run.devices, &uart)?;
        memory.heard_by(Some(Arc::new(Hearing(vm.clone()))));
        uart.reset(Some(run.devices.plug()), console);
        Ok(Body { memory, uart, run, vm })
    }

    /// A run that goes on as the frozen one was, with devices of that origin.
    #[inline(never)]
    fn resume(
        &self,
        uart: &Arc<Uart>,
        memory: &GuestMemory,
        origin: Origin<'_>,
    ) -> Outcome<(Box<Run>, SerialPort)> {
        let Self { host, plan, template } = self;
        let counts = Arc::default();
        let resumed = Run::try_resume(&worlds(host), plan, uart, &counts, origin, template);
        let (run, console) = resumed.map_err(|_| NO_VM)?;
        let run = Box::new(run);
        generation::change(plan, memory, &run.chipset).map_err(|_| NO_MEMORY)?;
        Ok((run, console))
    }

    /// Has a fork that does not run go on as the frozen VM was, as [`Host::run`] does.
    fn go_back(&self, body: &mut Body<F>) -> Outcome<()> {
        body.uart.stop();
        // SAFETY: the only thread that uses it is this one, which has left its guest.
        unsafe { body.memory.go_back() };
        let origin = Origin::Kept(&body.run.devices);
        let (next, console) = self.resume(&body.uart, &body.memory, origin)?;
        body.uart.reset(Some(next.devices.plug()), console);
        body.run = next;
        Ok(())
    }

    /// Looks at the memory of a fork that has written so many pages, and at what all begin from.
    fn check(&self, life: Life, memory: &GuestMemory, written: u32) -> Outcome<()> {
        if !life.is_checked() {
            return Ok(());
        }
        let word = |memory: &GuestMemory, at| {
            let mut bytes = [0; 8];
            memory.read(at, &mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let wrong = count_wrong(written, |at| word(memory, at)).map_err(|_| NO_MEMORY)?;
        if wrong != 0 {
            return Err("a fork has pages that are not its own");
        }
        match count_wrong(0, |at| word(&self.template.memory, at)).map_err(|_| NO_MEMORY)? {
            0 => Ok(()),
            _ => Err("a fork has written to what others begin from"),
        }
    }
}

impl<F: TableFormat> Body<F> {
    /// Ends a fork whose vCPU is gone.
    fn end(self) {
        let Self { memory, uart, run, vm } = self;
        memory.heard_by(None);
        run.devices.hide();
        uart.reset(None, SerialPort::new());
        vm.destroy();
    }
}
