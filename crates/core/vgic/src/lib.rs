//! A `GICv3` as a guest sees it: distributor, redistributors, SGIs, the list registers of the virtual CPU interface, and an
//! ITS with its LPIs.
//!
//! The crate touches no hardware and has no unsafe code. The embedder traps the guest's accesses to the two frames and to
//! `ICC_SGI1R_EL1` and its kin, moves [`Registers`] to and from `ICH_*_EL2`, and kicks vCPUs.
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
//! // vCPU 1 enters its guest, and a device raises its line.
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
//! - *Before the guest*: call [`Vgic::enter`], then move [`CpuInterface::registers`] to the hardware. For each linked PPI,
//!   write what [`Vgic::holds_physical`] says to `GICR_ISACTIVER0` or `GICR_ICACTIVER0` of the CPU that the vCPU runs on.
//! - *An exit that does not concern the GIC* leaves the hardware as it is. With interrupts masked, right before the next
//!   entry, [`Vgic::is_stale`] says whether there is something new. If so, read the registers back, call [`Vgic::leave`],
//!   and start from the top.
//! - *A maintenance interrupt* is an exit. After it, start from the top, too.
//! - *Off the CPU* (its time slice ends, it waits, it is turned off): read the registers back, call [`Vgic::leave`], set
//!   `ICH_HCR_EL2` = 0, and clear the physical active bits of linked PPIs.
//! - *WFI*: call `leave`, store "this vCPU sleeps" where [`Kick::kick`] sees it, call [`Vgic::is_pending`], then sleep.
//! - *Accesses to the frames*: [`Vgic::read`], [`Vgic::write`]. *`ICC_SGI1R_EL1`, `ICC_SGI0R_EL1`, `ICC_ASGI1R_EL1`*:
//!   [`Vgic::sgi`]. *`ICC_DIR_EL1`*, which traps: [`Vgic::deactivate`]. (`ICH_HCR_EL2.TDIR` makes it trap. A CPU without
//!   that bit, where `ICH_VTR_EL2.TDS` is zero, has `TC` instead, and its embedder sets that.)
//! - *LPIs*, of a GIC made by [`Vgic::try_with_its`]: after a write to a frame, and once after a load, look at
//!   [`Vgic::has_its_work`]; if there is some, one thread calls [`Vgic::serve_its`] until there is none. Devices call
//!   [`Vgic::send_msi`].
//! - *A linked physical interrupt* is taken at EL2 with `EOImode` 1, its priority dropped, and given to
//!   [`Vgic::take_linked`].
//!
//! # Saved, and loaded
//!
//! The GIC of a machine whose vCPUs are all out of their guests is saved by [`Vgic::save_distributor`], by
//! [`Vgic::save_its`], if it has an ITS, and by [`Vgic::save_vcpu`] for each vCPU. Another becomes it by
//! [`Vgic::load_distributor`], [`Vgic::load_its`] and [`Vgic::load_vcpu`], in this order and right after it was made, with as
//! many vCPUs, SPIs and links, and the same [`ItsConfig`]; it may have more list registers, or fewer. Lines are as they were
//! driven. A linked PPI that was taken is so still, which [`Vgic::holds_physical`] says at the vCPU's next entry.
//!
//! # How the state is guarded
//!
//! There are no locks. The state of an interrupt is one word, and all its transitions are compare-exchanges. So vCPUs,
//! device threads and interrupt handlers use one [`Vgic`] at once. A vCPU has an inbox of interrupts to look at. A caller
//! that makes an interrupt deliverable puts it there, then gives notice, then kicks. The top of `inbox.rs` argues that no
//! vCPU misses an interrupt. While an interrupt is in a list register of a running vCPU, its word keeps what other parties
//! request, and [`Vgic::leave`] combines both. A compare-exchange is tried again only when another party has changed the
//! same interrupt meanwhile.
//!
//! [`CpuInterface`] belongs to its vCPU's thread.
//!
//! # More interrupts than list registers
//!
//! No interrupt is dropped. The active ones come first, but one register is kept for the pending one that the guest would
//! take next. While other pending ones wait, the hardware interrupts when none of the loaded is pending any more, and when
//! the guest turns a group on or off. While an active one waits, the hardware interrupts when the guest ends one that is in
//! no register. The hardware does not say which one that is, so the GIC takes the waiting one of the highest priority,
//! which is the one that the guest runs.
//!
//! # How faithful it is
//!
//! There is one security state (`GICD_CTLR.DS`), affinity routing that is always on, both groups, and 32 priorities. There
//! are no virtual LPIs, no two-level tables of an ITS, no message-based SPIs, no *1 of N* routing, and no extended ranges. What the manual (Arm IHI
//! 0069) has for those reads as zero and ignores writes, and so do reserved offsets and sizes of access that a register
//! does not have. A read of what only a running vCPU's list register knows ([`Read::Retry`]) waits for that vCPU to come
//! out: guests see the true state.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod affinity;
mod collect;
mod copied;
mod cpu;
mod error;
mod frame;
mod inbox;
mod inject;
mod its;
mod list_register;
mod load;
mod saved;
mod select;
mod state;
mod vgic;

pub use affinity::{MAX_VCPUS, affinity};
pub use copied::NotCopied;
pub use cpu::{CpuInterface, Registers};
pub use error::{Error, NoSuchInterrupt, NotMapped};
pub use frame::{DISTRIBUTOR_SIZE, Frame, ITS_SIZE, REDISTRIBUTOR_SIZE, Read, Write};
pub use inject::SgiRegister;
pub use its::lpi::GuestTables;
pub use its::saved::ITS_STATE;
pub use its::tables::ItsConfig;
pub use its::work::Served;
pub use mayfly_state;
pub use saved::{DISTRIBUTOR_STATE, VCPU_STATE, VcpuInside};
pub use vgic::{Config, Kick, PART, Vgic};

/// The most list registers that hardware has.
pub const MAX_LIST_REGISTERS: usize = 16;

/// The most SPIs: 32 to 1019.
pub const MAX_SPIS: usize = 988;

/// The most LPIs: 8192 to 12287.
pub const MAX_LPIS: usize = inbox::MOST_LPIS;
