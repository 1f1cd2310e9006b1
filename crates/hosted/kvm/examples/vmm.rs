//! A VMM of two pages: a VM made in the order that waits least here, run to its end, and torn down.
//!
//! Its guest is 16-bit code that writes a greeting to the first serial port, rings a doorbell, and halts. Prints where the
//! time went: `cargo run --release -p mayfly-kvm --example vmm [MIB [VCPUS]]`.

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    eprintln!("vmm: its guest is x86 code, and this host is {}", std::env::consts::ARCH);
}

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    match vmm::run(std::env::args().skip(1)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        // Its reader has seen enough, as `head` has.
        Err(error) if vmm::is_broken_pipe(&*error) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vmm: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vmm {
    use std::error::Error;
    use std::io::{self, ErrorKind, Write};
    use std::time::Instant;

    use mayfly_kvm::kvm_ioctls::{VcpuExit, VcpuFd};
    use mayfly_kvm::vm_memory::{Bytes, GuestAddress};
    use mayfly_kvm::{
        Backing, HugePages, IoEvent, IrqFd, Irqchip, Kvm, Reclaimer, VmBuilder, Waits,
    };

    const CODE: u64 = 0x1000;
    const GREETING: u64 = 0x1100;
    const SERIAL: u16 = 0x3f8;
    const EXIT: u16 = 0xf4;
    /// Where a 16-bit guest can write, and no memory is.
    const DOORBELL: u64 = 0xf_0000;

    /// Writes what stands at `GREETING` to `SERIAL`, a 1 to `DOORBELL`, and a 0 to `EXIT`.
    const GUEST: [u8; 30] = [
        0xbe, 0x00, 0x11, //             mov  si, GREETING
        0xba, 0xf8, 0x03, //             mov  dx, SERIAL
        0xac, //                   next: lodsb
        0x84, 0xc0, //                   test al, al
        0x74, 0x03, //                   jz   done
        0xee, //                         out  dx, al
        0xeb, 0xf8, //                   jmp  next
        0xb8, 0x00, 0xf0, //       done: mov  ax, DOORBELL >> 4
        0x8e, 0xd8, //                   mov  ds, ax
        0xc6, 0x06, 0x00, 0x00, 0x01, // mov  byte [0], 1
        0x30, 0xc0, //                   xor  al, al
        0xe6, 0xf4, //                   out  EXIT, al
        0xeb, 0xfc, //                   jmp  back to that
    ];

    pub(super) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
        let mut number = |default: u32| -> Result<u32, Box<dyn Error>> {
            let Some(text) = arguments.next() else { return Ok(default) };
            Ok(text.parse().map_err(|_| format!("'{text}' is no number: vmm [MIB [VCPUS]]"))?)
        };
        let (mib, vcpus) = (number(128)?.max(1), number(2)?.max(1));
        let mut out = io::stdout().lock();
        let kvm = Kvm::open()?;
        let known = Instant::now();
        let waits = Waits::of_host(&kvm);
        writeln!(out, "waits of this host: measured or read in {:?}", known.elapsed())?;

        // Low memory, and the rest from 1 MiB on: the doorbell is between them.
        let ranges = [(0, 0xa_0000), (1 << 20, (mib as usize) << 20)];
        let mapped = Instant::now();
        let memory = Backing::Memfd.map(&ranges, Some(HugePages::Wanted))?;
        memory.write_slice(&GUEST, GuestAddress(CODE))?;
        memory.write_slice(b"hello from a guest\n\0", GuestAddress(GREETING))?;
        writeln!(out, "memory: mapped and written in {:?}", mapped.elapsed())?;

        let started = Instant::now();
        let builder = VmBuilder::new(&kvm, &waits).memory(&memory)?.irqchip(Irqchip::Full);
        let builder = builder.vcpus(vcpus).ioeventfd(IoEvent::new(DOORBELL, 1, None)?);
        let mut built = builder.irqfd(IrqFd::new(5)?).start()?;
        writeln!(out, "order: {}", built.plan)?;
        writeln!(out, "start: {}", built.timeline)?;

        let first = built.vcpus.first_mut().ok_or("there is no vCPU")?.fd_mut();
        enter(first)?;
        let ran = Instant::now();
        let mut said = Vec::new();
        loop {
            match first.run()? {
                VcpuExit::IoOut(SERIAL, bytes) => said.extend_from_slice(bytes),
                VcpuExit::IoOut(EXIT, _) => break,
                other => return Err(format!("unexpected exit: {other:?}").into()),
            }
        }
        writeln!(out, "run: the guest took {:?}, and printed:", ran.elapsed())?;
        out.write_all(&said)?;
        writeln!(
            out,
            "doorbell: rung {} time(s); from the start of the builder to here: {:?}",
            built.ioeventfds[0].take()?,
            started.elapsed()
        )?;

        let reclaimer = Reclaimer::new(4);
        drop(memory);
        let ended = Instant::now();
        let ending = built.teardown(&reclaimer);
        let returned = ended.elapsed();
        ending.wait();
        writeln!(
            out,
            "end: teardown returned after {returned:?}; all was freed after {:?}",
            ended.elapsed()
        )?;
        Ok(())
    }

    /// Whether nobody reads what is printed any more.
    pub(super) fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
        let error = error.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    }

    /// Real mode, at `CODE`.
    fn enter(vcpu: &mut VcpuFd) -> Result<(), Box<dyn Error>> {
        let mut sregs = vcpu.get_sregs()?;
        for segment in [&mut sregs.cs, &mut sregs.ds] {
            (segment.base, segment.selector) = (0, 0);
        }
        vcpu.set_sregs(&sregs)?;
        let mut regs = vcpu.get_regs()?;
        (regs.rip, regs.rflags) = (CODE, 2);
        vcpu.set_regs(&regs)?;
        Ok(())
    }
}
