//! A guest that has set up its GIC as kernels do, and a vCPU of it.

use std::cell::RefCell;

use mayfly_vgic::{Config, CpuInterface, Frame, Vgic};

use crate::hardware::{Cpu, intid};

pub(crate) const DISTRIBUTOR: Frame = Frame::Distributor;
pub(crate) const REDISTRIBUTORS: Frame = Frame::Redistributors;
pub(crate) const PENDING: u64 = 1 << 62;
pub(crate) const ACTIVE: u64 = 1 << 63;

pub(crate) type Gic<'a> = Vgic<Box<dyn Fn(usize) + 'a>>;

pub(crate) fn gic(vcpus: usize, list_registers: usize, kicked: &RefCell<Vec<usize>>) -> Gic<'_> {
    let config = Config { vcpus, spis: 64, list_registers, linked: &[(27, 27)] };
    let kick: Box<dyn Fn(usize)> = Box::new(|vcpu| kicked.borrow_mut().push(vcpu));
    let gic = Vgic::try_new(config, kick).unwrap();
    boot(&gic);
    for vcpu in 0..vcpus {
        let mut cpu = cpu(&gic, vcpu);
        gic.enter(&mut cpu);
        gic.leave(&mut cpu);
    }
    kicked.borrow_mut().clear();
    gic
}

/// What a kernel does: group 1 on, everything enabled in it and at priority 0xa0, all awake.
pub(crate) fn boot(gic: &Gic<'_>) {
    gic.write(DISTRIBUTOR, 0, 4, 2);
    for vcpu in 0..gic.vcpus() as u64 {
        let base = vcpu * 0x2_0000;
        gic.write(REDISTRIBUTORS, base + 0x14, 4, 0);
        gic.write(REDISTRIBUTORS, base + 0x1_0080, 4, 0xffff_ffff);
        gic.write(REDISTRIBUTORS, base + 0x1_0100, 4, 0xffff_ffff);
        for word in (0..32).step_by(4) {
            gic.write(REDISTRIBUTORS, base + 0x1_0400 + word, 4, 0xa0a0_a0a0);
        }
    }
    for word in [4, 8] {
        gic.write(DISTRIBUTOR, 0x080 + word, 4, 0xffff_ffff);
        gic.write(DISTRIBUTOR, 0x100 + word, 4, 0xffff_ffff);
    }
    for word in (32..96).step_by(4) {
        gic.write(DISTRIBUTOR, 0x400 + word, 4, 0xa0a0_a0a0);
    }
}

/// A vCPU whose guest takes group 1, at any priority.
pub(crate) fn cpu(gic: &Gic<'_>, vcpu: usize) -> CpuInterface {
    let mut cpu = gic.cpu_interface(vcpu).unwrap();
    cpu.registers.vmcr = 0xff << 24 | 2;
    cpu
}

pub(crate) fn resync(gic: &Gic<'_>, cpu: &mut CpuInterface) {
    gic.leave(cpu);
    gic.enter(cpu);
}

pub(crate) fn loaded(cpu: &CpuInterface) -> Vec<u32> {
    cpu.registers.lr[..cpu.used()].iter().map(|register| intid(*register)).collect()
}

pub(crate) fn take_all(gic: &Gic<'_>, cpu: &mut CpuInterface) -> Vec<u32> {
    let mut taken = Vec::new();
    loop {
        if gic.is_stale(cpu.vcpu()) || Cpu(&mut cpu.registers).wants_maintenance() {
            resync(gic, cpu);
        }
        Cpu(&mut cpu.registers).check();
        let Some(next) = Cpu(&mut cpu.registers).acknowledge() else { return taken };
        taken.push(next);
        Cpu(&mut cpu.registers).end(next);
    }
}
