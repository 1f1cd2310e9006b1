//! A vCPU that does what it is told, one order after the other ([`mayfly_lifecycle_steps::guest`]).

use mayfly_arm64::context::Resident;
use mayfly_arm64::guest::GuestCpu;
use mayfly_arm64::machine::WAITS;
use mayfly_lifecycle_steps::guest::{BELL, MEMORY, Order, answer};
use mayfly_vgic::affinity;
use mayfly_vm::{Exit, Guest, Vcpu};

use crate::bare::life::Life;
use crate::bare::seat::Seat;
use crate::bare::vcpu::{Board, interrupt_controller, put};
use crate::bare::vm::Kinds;
use crate::bare::{threads, trace};
use alloc::sync::Arc;

/// The seat of a life's vCPU.
pub(super) fn seat(life: &Life, number: u32) -> Result<Seat, &'static str> {
    let resident = Resident::new(affinity(number as usize), life.timer_offset);
    let interface = life.vgic.cpu_interface(number as usize).ok_or("there is no such vCPU")?;
    Ok(Seat::new(resident, Arc::clone(&life.vgic), interface, Arc::clone(&life.books)))
}

/// A vCPU and its processor.
pub(super) struct Obedient<'a, const FWB: bool> {
    life: &'a Life,
    seat: &'a Seat,
    vcpu: Vcpu<Kinds<FWB>>,
    cpu: GuestCpu<'a, Board<'a>>,
}

impl<'a, const FWB: bool> Obedient<'a, FWB> {
    /// One that can be run.
    pub(super) fn new(life: &'a Life, seat: &'a Seat, vcpu: Vcpu<Kinds<FWB>>) -> Self {
        let number = vcpu.id() as usize;
        life.places.take(number, vcpu.kicker());
        let board = Board { life, seat, vcpu: number, is_traced: trace::is_on() };
        let mut cpu = GuestCpu::new(&seat.resident, life.confinement, board);
        cpu.start(MEMORY, 0);
        Self { life, seat, vcpu, cpu }
    }

    /// Runs it until it asks what to do.
    pub(super) fn run(&mut self) -> Result<(), &'static str> {
        // SAFETY: the seat outlives this, which takes it back when it is dropped, or rests; putting it neither waits nor
        // switches.
        unsafe { threads::on_leave(Some((put, core::ptr::from_ref(self.seat).cast_mut().cast()))) };
        loop {
            match self.vcpu.run(&mut self.cpu) {
                Exit::Mmio(access) if access.gpa.get() == BELL && !access.write => return Ok(()),
                Exit::Mmio(access) => {
                    let number = self.vcpu.id() as usize;
                    if !interrupt_controller(self.life, number, &access, &mut self.cpu, self.seat) {
                        return Err("the guest has found a device that nobody answers for");
                    }
                }
                Exit::Kicked | Exit::Asked(_) => {}
                Exit::Custom(WAITS) => return Err("the guest waits"),
                _ => return Err("the guest came out for something that it does not do"),
            }
        }
    }

    /// Tells it, when it has asked, what to do, and runs it until it asks again.
    pub(super) fn obey(&mut self, order: Order, times: u32) -> Result<(), &'static str> {
        let bytes = answer(order, times).to_le_bytes();
        let data = self.cpu.data();
        if data.len() != bytes.len() {
            return Err("the guest has not asked");
        }
        data.copy_from_slice(&bytes);
        self.cpu.answered();
        self.run()
    }

    /// Takes its registers out of the processor, so that another may be run.
    pub(super) fn rest(&self) {
        self.seat.put();
        // SAFETY: nothing is left to be put.
        unsafe { threads::on_leave(None) };
    }
}

impl<const FWB: bool> Drop for Obedient<'_, FWB> {
    fn drop(&mut self) {
        self.rest();
        self.life.places.leave(self.vcpu.id() as usize);
    }
}
