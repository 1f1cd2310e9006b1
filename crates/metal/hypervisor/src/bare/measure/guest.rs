//! A vCPU that does one order after the other, as it is told ([`mayfly_lifecycle_steps::guest`]).

use core::borrow::BorrowMut;

use mayfly_lifecycle_steps::course;
use mayfly_lifecycle_steps::forked::Forked;
use mayfly_lifecycle_steps::guest::{BELL, ENTRY, Order, answer};
use mayfly_vm::{Exit, Guest, Vcpu};

use super::parts::Outcome;

use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::vm::arch::{self, Processor, Seat, Stopped, processor};
use crate::bare::vm::{Kinds, Run, Stop, TableFormat, put, wait};

const NOT_AT_REST: &str = "a vCPU is not at rest";

/// The seat of a vCPU of a run.
pub(super) fn seat(run: &Run, number: u32) -> Outcome<Seat> {
    Seat::try_new(run, number as usize).ok_or("there is no such vCPU")
}

/// A vCPU and its processor. It owns the vCPU, or has it for one of the runs that the vCPU goes through.
pub(crate) struct Obedient<'a, F: TableFormat, V: BorrowMut<Vcpu<Kinds<F>>> = Vcpu<Kinds<F>>> {
    run: &'a Run,
    seat: &'a Seat,
    vcpu: V,
    cpu: Processor<'a, F>,
}

impl<'a, F: TableFormat> Obedient<'a, F> {
    /// One that can be run.
    pub(crate) fn new(run: &'a Run, seat: &'a Seat, vcpu: Vcpu<Kinds<F>>) -> Self {
        let mut this = Self::without_registers(run, seat, vcpu);
        this.cpu.start(ENTRY, 0);
        this
    }

    /// What it is, to go on from: it asks for an order again. It runs no more.
    pub(super) fn freeze(&mut self) -> Outcome<Stopped> {
        self.answer(answer(Order::Ask, 0))?;
        self.rest();
        let interface = self.seat.take_interface().ok_or(NOT_AT_REST)?;
        let registers = self.cpu.at_rest().ok_or(NOT_AT_REST)?;
        let caches = self.vcpu.guest_caches();
        Ok(Stopped { is_on: true, start: None, interface, registers, caches })
    }
}

impl<'a, F: TableFormat, V: BorrowMut<Vcpu<Kinds<F>>>> Obedient<'a, F, V> {
    /// One whose registers are still to be [set](Obedient::be_as_it_was).
    pub(super) fn without_registers(run: &'a Run, seat: &'a Seat, vcpu: V) -> Self {
        let its: &Vcpu<Kinds<F>> = vcpu.borrow();
        let number = its.id() as usize;
        run.places.take(number, its.kicker());
        let cpu = processor(run, seat, number);
        Self { run, seat, vcpu, cpu }
    }

    /// Has its registers be what the run says that it goes on as.
    pub(super) fn be_as_it_was(&mut self) -> Outcome<()> {
        let vcpu = self.vcpu.borrow_mut();
        let before = self.run.take_resumed(vcpu.id() as usize).ok_or(NOT_AT_REST)?;
        self.cpu.go_on(&before.registers);
        self.seat.resume(before.interface.clone());
        let caches = before.caches;
        drop(before);
        vcpu.start_with_caches(caches).map_err(|_| "there is no memory for tables")
    }

    fn id(&self) -> usize {
        self.vcpu.borrow().id() as usize
    }

    /// Runs it until it asks for an order.
    pub(crate) fn run(&mut self) -> Outcome<()> {
        // SAFETY: the seat outlives this, which takes it back when it is dropped, or rests; putting it neither waits
        // nor switches.
        unsafe { threads::on_leave(Some((put, core::ptr::from_ref(self.seat).cast_mut().cast()))) };
        loop {
            match self.vcpu.borrow_mut().run(&mut self.cpu) {
                Exit::Mmio(access) if access.gpa.get() == BELL && !access.write => return Ok(()),
                Exit::Mmio(access) => {
                    let number = self.id();
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
    fn wait(&self) -> Outcome<()> {
        let latest = timer::ticks() + timer::frequency();
        wait(self.run, self.vcpu.borrow(), self.seat, Some(latest));
        if timer::ticks() < latest { Ok(()) } else { Err("the guest has waited for a second") }
    }

    /// Saves its registers, so that another vCPU may be run.
    pub(crate) fn rest(&self) {
        self.seat.put();
        // SAFETY: nothing is left to be put.
        unsafe { threads::on_leave(None) };
    }

    /// Gives it what it reads, and does not run it.
    fn answer(&mut self, answer: u64) -> Outcome<()> {
        let bytes = answer.to_le_bytes();
        let data = self.cpu.data();
        if data.len() != bytes.len() {
            return Err("the guest has not asked");
        }
        data.copy_from_slice(&bytes);
        self.cpu.answered();
        Ok(())
    }
}

impl<F: TableFormat, V: BorrowMut<Vcpu<Kinds<F>>>> course::Vcpu for Obedient<'_, F, V> {
    type Error = &'static str;

    fn obey_answer(&mut self, answer: u64) -> Outcome<()> {
        self.answer(answer)?;
        self.run()
    }
}

impl<F: TableFormat, V: BorrowMut<Vcpu<Kinds<F>>>> Forked for Obedient<'_, F, V> {
    fn go_on(&mut self) -> Outcome<()> {
        self.run()
    }
}

impl<F: TableFormat, V: BorrowMut<Vcpu<Kinds<F>>>> Drop for Obedient<'_, F, V> {
    fn drop(&mut self) {
        self.rest();
        self.run.places.leave(self.id());
    }
}
