//! Devices of the program's own, and where they are on a bus.

use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;

use mayfly_vm::iobus::{Error as BusError, IoRange, Ioeventfd, LastHit, Relocation};
use mayfly_vm::testing::{Kinds, Machine, Program, Step as Make};
use mayfly_vm::{Bus, Device, Vcpu, Vm};

use crate::host::{Host, NoDevice, returns};
use crate::step::accesses;

/// What a device does that is accessed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Panics,
    /// Moves itself, or another one.
    Relocates,
    Kicks,
    /// Puts another device on the bus, and makes a vCPU.
    Adds,
    /// Runs another vCPU of its VM.
    Runs,
    /// Ends its VM.
    Destroys,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Register {
        act: Act,
        at: u64,
        makes: Vec<Make>,
    },
    Eventfd {
        at: u64,
        len: u32,
        datamatch: Option<u64>,
        registers: bool,
    },
    Relocate {
        from: u64,
        to: u64,
    },
    /// Several changes at once; nothing is changed where it panics.
    Edit {
        from: u64,
        to: u64,
        panics: bool,
        forgets: bool,
    },
    Settle,
    Find {
        at: u64,
    },
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        Just(Act::Panics),
        Just(Act::Relocates),
        Just(Act::Kicks),
        Just(Act::Adds),
        Just(Act::Runs),
        Just(Act::Destroys),
    ];
    let at = 0..4_u64;
    let datamatch = prop::option::of(0..2_u64);
    prop_oneof![
        4 => (act, at.clone(), accesses())
            .prop_map(|(act, at, makes)| Step::Register { act, at, makes }),
        1 => (at.clone(), 0..9_u32, datamatch, any::<bool>()).prop_map(
            |(at, len, datamatch, registers)| Step::Eventfd { at, len, datamatch, registers }
        ),
        1 => (at.clone(), at.clone()).prop_map(|(from, to)| Step::Relocate { from, to }),
        1 => at.clone().prop_map(|at| Step::Find { at }),
        1 => (at.clone(), at, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
            |(from, to, panics, forgets)| Step::Edit { from, to, panics, forgets }
        ),
        1 => Just(Step::Settle),
    ]
}

fn range(at: u64) -> IoRange {
    IoRange { start: at << 40, len: 8 }
}

fn relocation(from: u64, to: u64) -> Relocation {
    Relocation::Device { from: range(from), to: range(to) }
}

/// A device, until its program ends.
pub(crate) struct Own {
    act: Act,
    at: u64,
    vm: Mutex<Option<Vm<Kinds>>>,
    inner: Mutex<Option<(Vcpu<Kinds>, Program)>>,
}

impl Own {
    fn new(act: Act, at: u64, vm: &Vm<Kinds>, machine: &Machine, makes: &[Make]) -> Self {
        let vcpu = vm.create_vcpu(100 + at as u32).ok();
        let inner = vcpu.map(|vcpu| (vcpu, machine.guest(makes)));
        Self { act, at, vm: Mutex::new(Some(vm.clone())), inner: Mutex::new(inner) }
    }

    /// Gives up its VM, which has it.
    pub(crate) fn end(&self) {
        self.vm.lock().unwrap_or_else(PoisonError::into_inner).take();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(inner);
    }

    fn act(&self, vcpu: u32) {
        let Ok(vm) = self.vm.try_lock() else { return };
        let Some(vm) = vm.clone() else { return };
        match self.act {
            Act::Panics => panic!("as it was told to"),
            Act::Relocates => {
                let _ = vm.relocate(Bus::Mmio, &[relocation(self.at, (self.at + 1) % 4)]);
            }
            Act::Kicks => drop(vm.kick(vcpu)),
            Act::Adds => {
                drop(vm.register_device(Bus::Mmio, range(vcpu.into()), Arc::new(NoDevice)));
                drop(vm.create_vcpu(200 + vcpu));
            }
            Act::Runs => {
                if let Ok(mut inner) = self.inner.try_lock()
                    && let Some((vcpu, program)) = &mut *inner
                {
                    let _ = vcpu.run(program);
                }
            }
            // Where a replacement of roots was forgotten, this would wait for ever, and debug builds say so.
            Act::Destroys if cfg!(debug_assertions) => vm.destroy(),
            Act::Destroys => {}
        }
    }
}

impl Device for Own {
    fn read(&self, vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(1);
        self.act(vcpu);
    }

    fn write(&self, vcpu: u32, _offset: u64, _data: &[u8]) {
        self.act(vcpu);
    }
}

impl Host {
    pub(crate) fn make_on_bus(&mut self, vm: usize, step: &Step) {
        let vm = &self.vms[vm].vm;
        let bus = vm.bus(Bus::Mmio);
        match *step {
            Step::Register { act, at, ref makes } => {
                let device = Arc::new(Own::new(act, at, vm, &self.machine, makes));
                self.devices.push(Arc::clone(&device));
                drop(vm.register_device(Bus::Mmio, range(at), device));
            }
            Step::Eventfd { at, len, datamatch, registers } => {
                let on = Ioeventfd { address: at << 40, len, datamatch };
                if registers {
                    drop(vm.register_eventfd(Bus::Mmio, on, Arc::new(NoDevice)));
                } else {
                    drop(vm.unregister_eventfd(Bus::Mmio, on));
                }
            }
            Step::Relocate { from, to } => {
                let both = [relocation(from, to), relocation(to, from)];
                let _ = vm.relocate(Bus::Mmio, &both[..=(from % 2) as usize]);
                drop(bus.relocate(&both[..1]));
            }
            Step::Edit { from, to, panics, forgets } => {
                returns(|| {
                    let edited = bus.edit(|edit| {
                        edit.insert(range(to), Arc::new(NoDevice))?;
                        edit.remove(range(from))?;
                        edit.relocate(relocation(to, from))?;
                        let on = Ioeventfd { address: to << 40, len: 4, datamatch: None };
                        edit.insert_eventfd(on, Arc::new(NoDevice))?;
                        edit.remove_eventfd(on)?;
                        assert!(!panics, "as it was told to");
                        Ok::<(), BusError>(())
                    });
                    match edited {
                        Ok(((), replaced)) if forgets => std::mem::forget(replaced),
                        Ok(((), replaced)) => match from % 3 {
                            0 => replaced.defer(),
                            1 => replaced.defer_expedited(),
                            _ => drop(replaced.try_defer()),
                        },
                        Err(_) => {}
                    }
                });
            }
            Step::Settle => bus.settle(),
            Step::Find { at } => {
                let section = vm.srcu().read_lock();
                let mut last = LastHit::default();
                // The devices have 8 bytes each.
                let found = bus.find(&section, &mut last, at << 40, 8).is_some();
                assert_eq!(bus.find(&section, &mut last, at << 40, 4).is_some(), found);
                assert!(bus.find(&section, &mut last, at << 40, 9).is_none());
            }
        }
    }
}
