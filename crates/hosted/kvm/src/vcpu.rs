//! A vCPU: loading the payload, running it to its next exit.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use kvm_bindings::KVM_EXIT_DIRTY_RING_FULL;
use kvm_ioctls::{VcpuExit, VcpuFd};
use rustix::io::Errno;

use crate::shared::Shared;
use crate::{CacheSwitch, Error, Exit, Payload, Statistics};

/// A virtual CPU. Runs on whichever thread calls [`Vcpu::run_to_exit`]; moving it between threads
/// costs KVM a migration.
#[derive(Debug)]
pub struct Vcpu {
    // Dropped first, so that closing a VM's last vCPU after its `Vm` still goes before unmapping
    // its memory.
    fd: VcpuFd,
    vm: Arc<Shared>,
}

impl Vcpu {
    pub(crate) fn new(fd: VcpuFd, vm: Arc<Shared>) -> Self {
        Self { fd, vm }
    }

    /// Tells the vCPU what it is (`KVM_SET_CPUID2`: all that the host supports; on arm64 `KVM_ARM_VCPU_INIT`) and sets
    /// the registers so that the next run starts `payload`. The VM has, or will have by then,
    /// memory at gpa 0 in which [`Payload::install`] put the code. Once, before the first run: after
    /// an MMIO exit, KVM would first finish the write at the old registers.
    ///
    /// # Errors
    /// [`Error::Call`] with the ioctl that failed; [`Error::UnsupportedArch`].
    pub fn load(&mut self, payload: &Payload) -> Result<(), Error> {
        self.vm.processor().tell(&self.fd)?;
        payload.enter(&self.fd, self.vm.fd())
    }

    /// Initialises the vCPU (`KVM_ARM_VCPU_INIT`) and sets its registers so that the next run starts `guest`. The VM
    /// has, or will have by then, memory at gpa 0 in which [`CacheSwitch::install`] put the code. Once, as
    /// [`Vcpu::load`].
    ///
    /// # Errors
    /// [`Error::Call`] with the ioctl that failed; [`Error::UnsupportedArch`].
    pub fn load_cache_switch(&mut self, guest: &CacheSwitch) -> Result<(), Error> {
        guest.enter(&self.fd, self.vm.fd())
    }

    /// Initialises the vCPU (`KVM_ARM_VCPU_INIT`) so that the next run begins at the guest physical address `pc`, as
    /// out of a reset: MMU and caches off, exceptions masked, with a PSCI that KVM answers. For a caller that brings a
    /// guest of its own.
    ///
    /// # Errors
    /// [`Error::Call`] with the ioctl that failed; [`Error::UnsupportedArch`].
    pub fn start_at(&mut self, pc: u64) -> Result<(), Error> {
        #[cfg(target_arch = "aarch64")]
        return crate::el1::reset(&self.fd, self.vm.fd(), pc);
        #[cfg(not(target_arch = "aarch64"))]
        {
            let _ = pc;
            Err(Error::UnsupportedArch("arm64"))
        }
    }

    /// What KVM has counted of this vCPU: `KVM_GET_STATS_FD`.
    ///
    /// # Errors
    /// As [`Vm::statistics`](crate::Vm::statistics).
    pub fn statistics(&self) -> Result<Statistics, Error> {
        // SAFETY: `VcpuFd` owns the fd and closes it only when it is dropped, and the borrow ends
        // before this returns.
        Statistics::of(unsafe { BorrowedFd::borrow_raw(self.fd.as_raw_fd()) })
    }

    /// The vCPU, for calls that this crate does not make.
    pub fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    /// The same, to run it.
    pub fn fd_mut(&mut self) -> &mut VcpuFd {
        &mut self.fd
    }

    /// Runs the guest until it leaves for this process: `KVM_RUN`, again after each signal.
    ///
    /// # Errors
    /// [`Error::Exit`] for an exit that the payload never makes (a shutdown, or on arm64 an exception: it touched what its
    /// page tables do not map); [`Error::Call`] with `KVM_RUN`.
    pub fn run_to_exit(&mut self) -> Result<Exit, Error> {
        loop {
            let exit = match self.fd.run() {
                Ok(exit) => exit,
                Err(error) if error.errno() == Errno::INTR.raw_os_error() => continue,
                Err(error) => return Err(Error::ioctl("KVM_RUN")(error)),
            };
            return match exit {
                VcpuExit::IoOut(port, &[a, b, c, d]) => {
                    Ok(Exit::PortWrite { port, value: u32::from_le_bytes([a, b, c, d]) })
                }
                VcpuExit::MmioWrite(gpa, &[a, b, c, d]) => {
                    Payload::written(gpa, u32::from_le_bytes([a, b, c, d]))
                }
                VcpuExit::Unsupported(KVM_EXIT_DIRTY_RING_FULL) => Ok(Exit::DirtyRingFull),
                other => Err(Error::Exit(format!("{other:?}"))),
            };
        }
    }
}
