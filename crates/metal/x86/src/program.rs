//! What runs on the machine itself. It has one flow of control, on one CPU: interrupts are masked but where it waits, and
//! where a guest runs.

mod boot;
mod processor;
mod vm;
mod world;

use core::panic::PanicInfo;

use processor::console::say;
use processor::ending::{Ending, end};

/// The program's end, in long mode, from `start.S`, with what the loader has told at this address.
#[unsafe(no_mangle)]
extern "C" fn begin(told: u64) -> ! {
    let ending = match boot::begin(told) {
        Ok(boot) => vm::run(&boot),
        Err(why) => {
            say!("{why}");
            Ending::Unable
        }
    };
    if ending == Ending::Done {
        say!("done");
    }
    end(ending)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("panic: {info}");
    end(Ending::Failed)
}
