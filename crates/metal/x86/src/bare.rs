//! What runs on the machine itself.

mod console;
mod cpu;
mod guest;
mod switch;

use core::panic::PanicInfo;

use mayfly_x86::svm::features::Features;

use console::say;

core::arch::global_asm!(include_str!("bare/start.S"), options(att_syntax));

/// The program's end, in long mode, from `start.S`.
#[unsafe(no_mangle)]
extern "C" fn begin() -> ! {
    let said = cpu::extended_leaf(0x8000_000a);
    let extended = cpu::extended_leaf(0x8000_0001);
    let Some(features) = Features::new(extended.ecx, said.eax, said.ebx, said.edx) else {
        say!("this CPU has no SVM: no guest can run");
        cpu::end(cpu::Ending::Unable)
    };
    say!("{features}");
    if !features.has_nested_paging() {
        say!("without nested paging no guest can run");
        cpu::end(cpu::Ending::Unable)
    }
    if !cpu::enable_svm() {
        say!("the firmware has disabled SVM (VM_CR.SVMDIS): no guest can run");
        cpu::end(cpu::Ending::Unable)
    }
    guest::run();
    say!("done");
    cpu::end(cpu::Ending::Done)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("panic: {info}");
    cpu::end(cpu::Ending::Failed)
}
