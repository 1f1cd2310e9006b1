//! A vCPU that does one order after the other, as it is told ([`mayfly_lifecycle_steps::guest`]).

use mayfly_lifecycle_steps::guest::{BELL, MEMORY};
use mayfly_vm::{Exit, Guest, Vcpu};

use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::vm::arch::{self, Processor, Seat, Stop, processor};
use crate::bare::vm::{Kinds, Run, TableFormat, put, wait};

/// The seat of a vCPU of a run.
pub(super) fn seat(run: &Run, number: u32) -> Result<Seat, &'static str> {
    Seat::try_new(run, number as usize).ok_or("there is no such vCPU")
}

/// A vCPU and its processor.
pub(crate) struct Obedient<'a, F: TableFormat> {
    run: &'a Run,
    seat: &'a Seat,
    vcpu: Vcpu<Kinds<F>>,
    cpu: Processor<'a, F>,
}

impl<'a, F: TableFormat> Obedient<'a, F> {
    /// One that can be run.
    pub(crate) fn new(run: &'a Run, seat: &'a Seat, vcpu: Vcpu<Kinds<F>>) -> Self {
        let number = vcpu.id() as usize;
        run.places.take(number, vcpu.kicker());
        let mut cpu = processor(run, seat, number);
        cpu.start(MEMORY, 0);
        Self { run, seat, vcpu, cpu }
    }

    /// Runs it until it asks for an order.
    pub(crate) fn run(&mut self) -> Result<(), &'static str> {
        // SAFETY: the seat outlives this, which takes it back when it is dropped, or rests; putting it neither waits
        // nor switches.
        unsafe { threads::on_leave(Some((put, core::ptr::from_ref(self.seat).cast_mut().cast()))) };
        loop {
            match self.vcpu.run(&mut self.cpu) {
                Exit::Mmio(access) if access.gpa.get() == BELL && !access.write => return Ok(()),
                Exit::Mmio(access) => {
                    let number = self.vcpu.id() as usize;
                    if !arch::answer(self.run, number, &access, &mut self.cpu, self.seat) {
                        return Err("the guest has accessed a device that is not there");
                    }
                }
                Exit::Kicked | Exit::Asked(_) => {}
                Exit::Custom(number) if arch::stop(number) == Some(Stop::Wait) => self.wait()?,
                _ => return Err("the guest has made an exit that its program does not make"),
            }
        }
    }

    /// Waits for an interrupt, for a second at the longest: nothing that the guest waits for takes longer.
    fn wait(&self) -> Result<(), &'static str> {
        let latest = timer::ticks() + timer::frequency();
        wait(self.run, &self.vcpu, self.seat, Some(latest));
        if timer::ticks() < latest { Ok(()) } else { Err("the guest has waited for a second") }
    }

    /// Saves its registers, so that another vCPU may be run.
    pub(crate) fn rest(&self) {
        self.seat.put();
        // SAFETY: nothing is left to be put.
        unsafe { threads::on_leave(None) };
    }
}

impl<F: TableFormat> mayfly_lifecycle_steps::course::Vcpu for Obedient<'_, F> {
    type Error = &'static str;

    fn obey_answer(&mut self, answer: u64) -> Result<(), &'static str> {
        let bytes = answer.to_le_bytes();
        let data = self.cpu.data();
        if data.len() != bytes.len() {
            return Err("the guest has not asked");
        }
        data.copy_from_slice(&bytes);
        self.cpu.answered();
        self.run()
    }
}

impl<F: TableFormat> Drop for Obedient<'_, F> {
    fn drop(&mut self) {
        self.rest();
        self.run.places.leave(self.vcpu.id() as usize);
    }
}
