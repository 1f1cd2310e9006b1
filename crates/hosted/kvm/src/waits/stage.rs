//! A VM made ready for two calls.

use std::time::Instant;

use crate::{Call, Error, GuestMemory, IoEvent, IrqFd, Kvm, MemoryFlags, Vcpu, Vm};

/// A VM with what the two calls need, and nothing else.
pub(super) struct Stage {
    /// Until it is closed.
    vm: Option<Vm>,
    vcpus: Vec<Vcpu>,
    memory: GuestMemory,
    ioeventfds: [Option<IoEvent>; 2],
    irqfds: [Option<IrqFd>; 2],
}

/// Which of the two calls is made: what it makes or takes away is another one's than the other's.
#[derive(Clone, Copy)]
pub(super) enum Role {
    First,
    Second,
}

impl Role {
    fn number(self) -> u32 {
        self as u32
    }
}

/// A slot that a call adds, moves or deletes has memory of a page, at its own address.
const PAGE: usize = 4096;

fn address(slot: u32) -> u64 {
    u64::from(slot) << 20
}

impl Stage {
    /// Makes a VM ready for `first`, and `second` after it.
    pub(super) fn set(
        kvm: &Kvm,
        memory: &GuestMemory,
        first: Call,
        second: Call,
    ) -> Result<Self, Error> {
        debug_assert_eq!(memory.size(), PAGE);
        let mut stage = Self {
            vm: Some(Vm::create(kvm)?),
            vcpus: Vec::new(),
            memory: memory.clone(),
            ioeventfds: [None, None],
            irqfds: [None, None],
        };
        if (first.needs_irqchip() || second.needs_irqchip()) && !first.is_irqchip() {
            stage.vm()?.create_irqchip()?;
        }
        stage.prepare(first, Role::First)?;
        stage.prepare(second, Role::Second)?;
        Ok(stage)
    }

    fn prepare(&mut self, call: Call, role: Role) -> Result<(), Error> {
        let number = role.number();
        let at = number as usize;
        match call {
            Call::IoeventfdAdd | Call::IoeventfdRemove => {
                let event = IoEvent::new(0xd000_0000 + u64::from(number) * 8, 4, None)?;
                if call == Call::IoeventfdRemove {
                    self.vm()?.register_ioeventfd(&event)?;
                }
                self.ioeventfds[at] = Some(event);
            }
            Call::IrqfdAdd | Call::IrqfdRemove => {
                let irqfd = IrqFd::new(5 + number)?;
                if call == Call::IrqfdRemove {
                    self.vm()?.register_irqfd(&irqfd)?;
                }
                self.irqfds[at] = Some(irqfd);
            }
            Call::MemslotMove | Call::MemslotDelete => self.set_slot(number, address(number))?,
            _ => {}
        }
        Ok(())
    }

    fn vm(&self) -> Result<&Vm, Error> {
        self.vm.as_ref().ok_or(Error::Call { call: "close", errno: 0 })
    }

    fn set_slot(&self, slot: u32, gpa: u64) -> Result<(), Error> {
        self.vm()?.set_memory_region(slot, gpa, &self.memory, MemoryFlags::default())
    }

    /// Makes the call, and gives the nanoseconds that it took.
    pub(super) fn make(&mut self, call: Call, role: Role) -> Result<u64, Error> {
        let number = role.number();
        let at = number as usize;
        let event = self.ioeventfds[at].as_ref();
        let irqfd = self.irqfds[at].as_ref();
        if call == Call::Close {
            let (vm, vcpus) = (self.vm.take(), std::mem::take(&mut self.vcpus));
            let start = Instant::now();
            drop(vm.map(|vm| vm.destroy(vcpus)));
            return Ok(since(start));
        }
        let vm = self.vm()?;
        let mut vcpu = None;
        let start = Instant::now();
        let made = match call {
            Call::IrqchipFull => vm.create_irqchip(),
            Call::IrqchipSplit => vm.split_irqchip(),
            Call::Pit => vm.create_pit(),
            Call::IoeventfdAdd => event.map_or(Ok(()), |event| vm.register_ioeventfd(event)),
            Call::IoeventfdRemove => event.map_or(Ok(()), |event| vm.unregister_ioeventfd(event)),
            Call::IrqfdAdd => irqfd.map_or(Ok(()), |irqfd| vm.register_irqfd(irqfd)),
            Call::IrqfdRemove => irqfd.map_or(Ok(()), |irqfd| vm.unregister_irqfd(irqfd)),
            Call::Vcpu => vm.create_vcpu(number).map(|created| vcpu = Some(created)),
            Call::MemslotAdd => self.set_slot(number, address(number)),
            Call::MemslotMove => self.set_slot(number, address(number + 8)),
            Call::MemslotDelete => vm.delete_memory_region(number).map(drop),
            Call::Close => Ok(()),
        };
        let took = since(start);
        self.vcpus.extend(vcpu);
        made.map(|()| took)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The vCPUs' fds first: the VM ends with the last.
        self.vcpus.clear();
    }
}

fn since(start: Instant) -> u64 {
    start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
}
