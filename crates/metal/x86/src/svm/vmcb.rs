//! The control block of a virtual machine (APM volume 2, appendix B).

/// A segment register.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// What the guest has loaded.
    pub selector: u16,
    /// Bits 55 to 52 and 47 to 40 of the descriptor.
    pub attributes: u16,
    /// In bytes.
    pub limit: u32,
    /// Its first address.
    pub base: u64,
}

impl Segment {
    /// As in real mode, at `base`: 64 KiB that are read and written, and executed if they are `code`.
    pub const fn real(base: u64, code: bool) -> Self {
        let attributes = if code { 0x9b } else { 0x93 };
        Self { selector: (base >> 4) as u16, attributes, limit: 0xffff, base }
    }
}

/// What the hypervisor asks for, and what it is told at an exit.
#[repr(C)]
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are the manual's")]
pub struct Control {
    pub intercept_cr: u32,
    pub intercept_dr: u32,
    pub intercept_exceptions: u32,
    pub intercepts: [u32; 2],
    reserved_14: [u32; 11],
    pub iopm_base: u64,
    pub msrpm_base: u64,
    pub tsc_offset: u64,
    pub asid: u32,
    pub tlb_control: u32,
    pub virtual_interrupts: u64,
    pub interrupt_shadow: u64,
    pub exit_code: u64,
    pub exit_info_1: u64,
    pub exit_info_2: u64,
    pub exit_interrupt_info: u64,
    pub nested_paging: u64,
    reserved_98: [u64; 2],
    pub event_injection: u64,
    pub nested_cr3: u64,
    pub lbr_control: u64,
    pub clean_bits: u64,
    pub next_rip: u64,
    reserved_d0: [u64; 102],
}

/// The guest's state, as far as VMRUN, VMLOAD and VMSAVE move it.
#[repr(C)]
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are the manual's")]
pub struct Save {
    pub es: Segment,
    pub cs: Segment,
    pub ss: Segment,
    pub ds: Segment,
    pub fs: Segment,
    pub gs: Segment,
    pub gdtr: Segment,
    pub ldtr: Segment,
    pub idtr: Segment,
    pub tr: Segment,
    reserved_a0: [u8; 0x2b],
    pub cpl: u8,
    reserved_cc: u32,
    pub efer: u64,
    reserved_d8: [u64; 14],
    pub cr4: u64,
    pub cr3: u64,
    pub cr0: u64,
    pub dr7: u64,
    pub dr6: u64,
    pub rflags: u64,
    pub rip: u64,
    reserved_180: [u64; 11],
    pub rsp: u64,
    reserved_1e0: [u64; 3],
    pub rax: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
    pub sysenter_cs: u64,
    pub sysenter_esp: u64,
    pub sysenter_eip: u64,
    pub cr2: u64,
    reserved_248: [u64; 4],
    pub pat: u64,
    reserved_270: [u8; 0x990],
}

/// The control block: a page.
#[repr(C, align(4096))]
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "its two parts")]
pub struct Vmcb {
    pub control: Control,
    pub save: Save,
}

/// Bits of the first word of [`Control::intercepts`],
pub mod first {
    /// An interrupt of the machine's.
    pub const INTERRUPT: u32 = 1 << 0;
    /// A non-maskable interrupt of the machine's.
    pub const NMI: u32 = 1 << 1;
    /// The guest takes interrupts, and a virtual one is there.
    pub const VIRTUAL_INTERRUPT: u32 = 1 << 4;
    /// `RDPMC`.
    pub const RDPMC: u32 = 1 << 15;
    /// `CPUID`.
    pub const CPUID: u32 = 1 << 18;
    /// `IRET`.
    pub const IRET: u32 = 1 << 20;
    /// `INVD`.
    pub const INVD: u32 = 1 << 22;
    /// `HLT`.
    pub const HLT: u32 = 1 << 24;
    /// `INVLPGA`.
    pub const INVLPGA: u32 = 1 << 26;
    /// Ports, as the permission map has it.
    pub const PORTS: u32 = 1 << 27;
    /// MSRs, as the permission map has it.
    pub const MSRS: u32 = 1 << 28;
    /// The guest's CPU shuts down: a triple fault.
    pub const SHUTDOWN: u32 = 1 << 31;
}

/// and of the second.
pub mod second {
    /// `VMRUN`: a guest without it is refused by the CPU (15.5.1).
    pub const VMRUN: u32 = 1 << 0;
    /// `VMMCALL`.
    pub const VMMCALL: u32 = 1 << 1;
    /// `VMLOAD`, `VMSAVE`, `STGI`, `CLGI` and `SKINIT`.
    pub const SVM: u32 = 0b1_1111 << 2;
    /// `WBINVD`.
    pub const WBINVD: u32 = 1 << 9;
    /// `MONITOR`, and `MWAIT` in its two forms.
    pub const MONITOR: u32 = 0b111 << 10;
    /// `XSETBV`.
    pub const XSETBV: u32 = 1 << 13;
    /// `RDPRU`.
    pub const RDPRU: u32 = 1 << 14;
}

/// `EFER.SVME`, which the guest's own has to have too (15.5.1).
pub const SVME: u64 = 1 << 12;

/// What always brings a guest out, in the first word,
const FIRST: u32 = first::INTERRUPT
    | first::NMI
    | first::RDPMC
    | first::CPUID
    | first::INVD
    | first::HLT
    | first::INVLPGA
    | first::PORTS
    | first::MSRS
    | first::SHUTDOWN;
/// and in the second.
const SECOND: u32 = second::VMRUN
    | second::VMMCALL
    | second::SVM
    | second::WBINVD
    | second::MONITOR
    | second::XSETBV
    | second::RDPRU;
/// `#AC` and `#DB`, which a CPU can raise without end in the course of raising them (CVE-2015-5307, CVE-2015-8104), and
/// `#MC`, which is the machine's.
const EXCEPTIONS: u32 = 1 << 1 | 1 << 17 | 1 << 18;

/// Of [`Control::intercept_cr`]: CR4 is written. The guest's CPU has more bits than the guest ([`crate::machine::cr4`]).
const WRITES_CR4: u32 = 1 << 20;

/// `V_INTR_MASKING`: the guest's `RFLAGS.IF` does not keep the machine's interrupts back (15.21.1).
const MASKS_VIRTUALLY: u64 = 1 << 24;

/// What PAT is after reset.
pub const PAT: u64 = 0x0007_0406_0007_0406;

impl Vmcb {
    /// Of a guest with nested paging, of all of which what reaches out of it comes out, as after reset (volume 2, table
    /// 14-1).
    pub const fn reset(iopm_base: u64, msrpm_base: u64) -> Self {
        Self {
            control: Control {
                intercept_cr: WRITES_CR4,
                intercept_dr: 0,
                intercept_exceptions: EXCEPTIONS,
                intercepts: [FIRST, SECOND],
                reserved_14: [0; 11],
                iopm_base,
                msrpm_base,
                tsc_offset: 0,
                asid: 1,
                tlb_control: 0,
                virtual_interrupts: MASKS_VIRTUALLY,
                interrupt_shadow: 0,
                exit_code: 0,
                exit_info_1: 0,
                exit_info_2: 0,
                exit_interrupt_info: 0,
                nested_paging: 1,
                reserved_98: [0; 2],
                event_injection: 0,
                nested_cr3: 0,
                lbr_control: 0,
                clean_bits: 0,
                next_rip: 0,
                reserved_d0: [0; 102],
            },
            save: Save::reset(),
        }
    }
}

impl Save {
    /// As after reset.
    pub const fn reset() -> Self {
        let data = Segment::real(0, false);
        let table = Segment { selector: 0, attributes: 0, limit: 0xffff, base: 0 };
        Self {
            es: data,
            cs: Segment { selector: 0xf000, base: 0xffff_0000, ..Segment::real(0, true) },
            ss: data,
            ds: data,
            fs: data,
            gs: data,
            gdtr: table,
            ldtr: Segment { attributes: 0x82, ..table },
            idtr: table,
            tr: Segment { attributes: 0x8b, ..table },
            reserved_a0: [0; 0x2b],
            cpl: 0,
            reserved_cc: 0,
            efer: SVME,
            reserved_d8: [0; 14],
            cr4: 0,
            cr3: 0,
            cr0: 0x6000_0010,
            dr7: 0x400,
            dr6: 0xffff_0ff0,
            rflags: 2,
            rip: 0xfff0,
            reserved_180: [0; 11],
            rsp: 0,
            reserved_1e0: [0; 3],
            rax: 0,
            star: 0,
            lstar: 0,
            cstar: 0,
            sfmask: 0,
            kernel_gs_base: 0,
            sysenter_cs: 0,
            sysenter_esp: 0,
            sysenter_eip: 0,
            cr2: 0,
            reserved_248: [0; 4],
            pat: PAT,
            reserved_270: [0; 0x990],
        }
    }

    /// Has it begin in real mode at `address`, a multiple of 16 below 1 MiB, as a start-up does.
    pub const fn begin_real(&mut self, address: u64) {
        self.cs = Segment::real(address, true);
        self.rip = 0;
    }
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};

    use super::*;

    /// The offsets of appendix B, tables B-1 and B-2.
    #[test]
    fn each_field_is_where_the_manual_has_it() {
        assert_eq!(size_of::<Vmcb>(), 4096);
        assert_eq!((offset_of!(Vmcb, control), offset_of!(Vmcb, save)), (0, 0x400));
        let control = [
            (offset_of!(Control, intercepts), 0x00c),
            (offset_of!(Control, iopm_base), 0x040),
            (offset_of!(Control, msrpm_base), 0x048),
            (offset_of!(Control, tsc_offset), 0x050),
            (offset_of!(Control, asid), 0x058),
            (offset_of!(Control, tlb_control), 0x05c),
            (offset_of!(Control, virtual_interrupts), 0x060),
            (offset_of!(Control, interrupt_shadow), 0x068),
            (offset_of!(Control, exit_code), 0x070),
            (offset_of!(Control, exit_info_1), 0x078),
            (offset_of!(Control, exit_info_2), 0x080),
            (offset_of!(Control, exit_interrupt_info), 0x088),
            (offset_of!(Control, nested_paging), 0x090),
            (offset_of!(Control, event_injection), 0x0a8),
            (offset_of!(Control, nested_cr3), 0x0b0),
            (offset_of!(Control, next_rip), 0x0c8),
        ];
        let save = [
            (offset_of!(Save, cs), 0x010),
            (offset_of!(Save, gdtr), 0x060),
            (offset_of!(Save, tr), 0x090),
            (offset_of!(Save, cpl), 0x0cb),
            (offset_of!(Save, efer), 0x0d0),
            (offset_of!(Save, cr4), 0x148),
            (offset_of!(Save, cr3), 0x150),
            (offset_of!(Save, cr0), 0x158),
            (offset_of!(Save, dr7), 0x160),
            (offset_of!(Save, dr6), 0x168),
            (offset_of!(Save, rflags), 0x170),
            (offset_of!(Save, rip), 0x178),
            (offset_of!(Save, rsp), 0x1d8),
            (offset_of!(Save, rax), 0x1f8),
            (offset_of!(Save, star), 0x200),
            (offset_of!(Save, kernel_gs_base), 0x220),
            (offset_of!(Save, sysenter_eip), 0x238),
            (offset_of!(Save, cr2), 0x240),
            (offset_of!(Save, pat), 0x268),
        ];
        for (is, said) in control.into_iter().chain(save) {
            assert_eq!(is, said, "{said:#x}");
        }
    }
}
