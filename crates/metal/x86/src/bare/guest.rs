//! A guest of a few instructions, in real mode, with one page of memory. It asks for CPUID and prints what it is told, calls
//! its hypervisor, writes where no memory is, and halts. Each of these comes out, and goes on behind the instruction, whose
//! length its bytes say.

use core::ptr::{addr_of, addr_of_mut};

use mayfly_x86::svm::exit::Exit;
use mayfly_x86::svm::vmcb::Vmcb;
use mayfly_x86_decode::{Mode, Operation, decode};

use super::console::{put, say};
use super::cpu::{self, Page};
use super::switch::{Registers, enter};

/// Where the guest's page is in its memory.
const PLACE: u64 = 0x1000;

const CODE: [u8; 23] = [
    0x66, 0xb8, 0x00, 0x00, 0x00, 0x40, // mov eax, 0x40000000
    0x0f, 0xa2, // cpuid
    0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0x88, 0xd8, // mov al, bl
    0xee, // out dx, al
    0x0f, 0x01, 0xd9, // vmmcall
    0xa2, 0x00, 0x50, // mov [0x5000], al
    0xf4, // hlt
    0xeb, 0xfe, // nothing that is to be reached
];

/// What it comes out for, in this order.
const COMES_OUT: [&str; 5] = ["CPUID", "OUT", "VMMCALL", "a write of 1 byte to 0x5000", "HLT"];

#[repr(C, align(4096))]
struct Table([u64; 512]);

static MEMORY: Page = {
    let mut page = [0; 4096];
    let mut at = 0;
    while at < CODE.len() {
        page[at] = CODE[at];
        at += 1;
    }
    Page(page)
};

/// All ports and all MSRs come out (APM volume 2, 15.10.1 and 15.11).
static ALL: [Page; 3] = [const { Page([0xff; 4096]) }; 3];

/// Present, and a user's, as what a guest accesses always is (15.25.5). Nothing is written: the guest's page is a constant.
const READ: u64 = 0b101;
const TABLE: u64 = 0b111;

/// Runs it to its end.
pub(super) fn run() {
    let (mut leaf, mut middle, mut upper, mut top) =
        (Table([0; 512]), Table([0; 512]), Table([0; 512]), Table([0; 512]));
    leaf.0[(PLACE >> 12) as usize] = addr_of!(MEMORY) as u64 | READ;
    middle.0[0] = addr_of_mut!(leaf) as u64 | TABLE;
    upper.0[0] = addr_of_mut!(middle) as u64 | TABLE;
    top.0[0] = addr_of_mut!(upper) as u64 | TABLE;
    let all = addr_of!(ALL) as u64;
    let mut vmcb = Vmcb::real(PLACE, addr_of_mut!(top) as u64, all, all);
    let mut registers = Registers::default();
    for expected in COMES_OUT {
        // SAFETY: the tables and the maps live until this function ends. The one page that the tables map is a constant,
        // which the guest may read alone. `begin` has turned SVM on.
        unsafe { enter(&mut vmcb, &mut registers) };
        let came_out = see_to(&mut vmcb, &mut registers);
        if came_out != Some(expected) {
            say!("the guest came out for {:?}, and not for {expected}", Exit::from(&vmcb.control));
            cpu::end(cpu::Ending::Failed)
        }
        say!("the guest came out for {expected}");
    }
}

/// Does what the guest has asked for; what that was.
fn see_to(vmcb: &mut Vmcb, registers: &mut Registers) -> Option<&'static str> {
    let exit = Exit::from(&vmcb.control);
    if let Exit::Out { port: 0x3f8, bytes: 1, next } = exit {
        put(vmcb.save.rax as u8);
        put(b'\n');
        vmcb.save.rip = next;
        return Some(COMES_OUT[1]);
    }
    let bytes = CODE.get(vmcb.save.rip as usize..)?;
    let instruction = decode(Mode::Bits16, bytes).ok()?;
    vmcb.save.rip += u64::from(instruction.length);
    match (exit, instruction.operation) {
        (Exit::Cpuid, Operation::System(_)) => {
            vmcb.save.rax = 0;
            registers.0[3] = u64::from(b'M');
            Some(COMES_OUT[0])
        }
        (Exit::Call, Operation::System(_)) => Some(COMES_OUT[2]),
        (Exit::NestedFault { address: 0x5000, write: true }, Operation::Store { .. }) => {
            Some(COMES_OUT[3])
        }
        (Exit::Halt, Operation::System(_)) => Some(COMES_OUT[4]),
        _ => None,
    }
}
