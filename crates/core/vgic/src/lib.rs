//! A `GICv3` as a guest sees it: distributor, redistributors, SGIs, and the list registers of the virtual CPU interface.
//!
//! No hardware is touched, and there is no unsafe code. The embedder traps the guest's accesses to the two frames and to
//! `ICC_SGI1R_EL1` and its kin, moves [`Registers`] to and from `ICH_*_EL2`, and kicks.
//!
//! ```
//! use std::sync::Mutex;
//! use mayfly_vgic::{Config, Frame, Read, Vgic};
//!
//! let kicked = Mutex::new(Vec::new());
//! let config = Config { vcpus: 2, spis: 32, list_registers: 4, linked: &[(27, 27)] };
//! let gic = Vgic::try_new(config, |vcpu| kicked.lock().unwrap().push(vcpu))?;
//! let mut cpu = gic.cpu_interface(1).unwrap();
//!
//! // The guest, on vCPU 0: group 1 on, vCPU 1's redistributor awake, SPI 40 enabled and routed to vCPU 1.
//! gic.write(Frame::Distributor, 0x0000, 4, 0x2);
//! gic.write(Frame::Redistributors, 0x2_0014, 4, 0);
//! gic.write(Frame::Distributor, 0x0084, 4, 0xffff_ffff);
//! gic.write(Frame::Distributor, 0x6000 + 8 * 40, 8, 1);
//! gic.write(Frame::Distributor, 0x0104, 4, 1 << 8);
//! assert_eq!(gic.read(0, Frame::Distributor, 0x0104, 4), Read::Value(1 << 8));
//!
//! // vCPU 1 goes into its guest, and a device raises its line.
//! gic.enter(&mut cpu);
//! kicked.lock().unwrap().clear();
//! gic.set_spi(40, true)?;
//! assert_eq!(*kicked.lock().unwrap(), [1], "vCPU 1 is to come out,");
//! gic.leave(&mut cpu);
//! gic.enter(&mut cpu);
//! assert_eq!(cpu.registers.lr[0] as u32, 40, "and goes in again with the interrupt");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What an embedder does
//!
//! - *Before the guest*: [`Vgic::enter`], then [`CpuInterface::registers`] to the hardware, and, for each linked PPI, what
//!   [`Vgic::holds_physical`] says to `GICR_ISACTIVER0` or `GICR_ICACTIVER0` of the CPU that it runs on.
//! - *An exit that does not concern the GIC* leaves the hardware as it is. With interrupts masked, right before the next
//!   entry, [`Vgic::is_stale`] says whether there is something new: then the registers are read back, [`Vgic::leave`], and
//!   from the top.
//! - *A maintenance interrupt* is an exit after which it is from the top, too.
//! - *Off the CPU* (its time slice ends, it waits, it is turned off): registers read back, [`Vgic::leave`],
//!   `ICH_HCR_EL2` = 0, the physical active bits of linked PPIs cleared.
//! - *WFI*: `leave`, "this vCPU sleeps" where [`Kick::kick`] sees it, then [`Vgic::is_pending`], then sleep.
//! - *Accesses to the frames*: [`Vgic::read`], [`Vgic::write`]. *`ICC_SGI1R_EL1`, `ICC_SGI0R_EL1`, `ICC_ASGI1R_EL1`*:
//!   [`Vgic::sgi`]. *`ICC_DIR_EL1`*, which traps: [`Vgic::deactivate`]. (`ICH_HCR_EL2.TDIR`; a CPU without that bit,
//!   `ICH_VTR_EL2.TDS` is zero, has `TC` instead, and its embedder sets that.)
//! - *A linked physical interrupt* is taken at EL2 with `EOImode` 1, its priority dropped, and given to
//!   [`Vgic::take_linked`].
//!
//! # Who guards what
//!
//! There are no locks. The state of an interrupt is one word, all its transitions are compare-exchanges, and so vCPUs,
//! device threads and interrupt handlers use one [`Vgic`] at once. A vCPU has an inbox of interrupts to look at; who
//! makes one deliverable puts it there, then gives notice, then kicks. The argument that nobody is missed is at the top of
//! `inbox.rs`. While an interrupt is in a list register of a running vCPU, its word keeps what others ask for, and
//! [`Vgic::leave`] brings both together. A compare-exchange is tried again only when somebody else has changed the same
//! interrupt meanwhile.
//!
//! [`CpuInterface`] belongs to its vCPU's thread.
//!
//! # More interrupts than list registers
//!
//! Nothing is dropped. The active ones come first, but one register is kept for the pending one that the guest would take
//! next. While others wait, the hardware interrupts when none of the loaded is pending any more, and when the guest turns
//! a group on or off. While an active one waits, it interrupts when the guest ends one that is in no register; as that
//! does not say which, it is the one of the highest priority that waits, which is the one that the guest runs.
//!
//! # How faithful it is
//!
//! One security state (`GICD_CTLR.DS`), affinity routing always on, both groups, 32 priorities. There are no LPIs and no
//! ITS, no message-based SPIs, no *1 of N* routing, no extended ranges; what the manual (Arm IHI 0069) has for those reads
//! as zero and ignores writes, as do reserved offsets and sizes of access that a register has not. A read of what only a
//! running vCPU's list register knows ([`Read::Retry`]) waits for that vCPU to come out: guests see the true state.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod affinity;
mod cpu;
mod error;
mod frame;
mod inbox;
mod inject;
mod list_register;
mod load;
mod select;
mod state;
mod vgic;

pub use affinity::{MAX_VCPUS, affinity};
pub use cpu::{CpuInterface, Registers};
pub use error::{Error, NoSuchInterrupt};
pub use frame::{DISTRIBUTOR_SIZE, Frame, REDISTRIBUTOR_SIZE, Read, Write};
pub use inject::SgiRegister;
pub use vgic::{Config, Kick, Vgic};

/// The most list registers that hardware has.
pub const MAX_LIST_REGISTERS: usize = 16;

/// The most SPIs: 32 to 1019.
pub const MAX_SPIS: usize = 988;
