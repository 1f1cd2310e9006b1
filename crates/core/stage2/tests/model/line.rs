//! A vCPU's line, as its user keeps it: where it is, and its hold.

use mayfly_platform::memory::Kept;
use mayfly_platform::sync::{AtomicU32, Ordering};
use mayfly_platform::tlb::Tlb;
use mayfly_stage2::{Format, Held, Hold, Holder, Resident, Role};

use super::Vm;

const OUTSIDE: u32 = 0;
const IN_GUEST: u32 = 1;
const TELLS: u32 = 2;

pub(crate) struct Line {
    mode: AtomicU32,
    hold: Hold,
}

// SAFETY: the hold is a field.
unsafe impl Resident for Line {
    fn hold(&self) -> &Hold {
        &self.hold
    }

    fn tell_when_out(&self) -> bool {
        let is_in = |mode| (mode != OUTSIDE).then_some(mode | TELLS);
        self.mode.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_in).is_ok()
    }
}

/// What of a vCPU goes into guests.
pub(crate) struct Resides {
    holder: Holder<Line>,
    line: Kept<Line>,
}

impl Resides {
    pub(crate) fn new<F: Format, T: Tlb + 'static>(vm: &Vm<F, T>) -> Self {
        let line = Line { mode: AtomicU32::new(OUTSIDE), hold: Hold::new() };
        let line = Kept::try_new(line).unwrap();
        Self { holder: vm.stage2.register_holder(line.handle()).unwrap(), line }
    }

    /// Runs `guest` on the present root, if there is one and it stays that until it is held.
    pub(crate) fn enter<F: Format, T: Tlb + 'static, R>(
        &mut self,
        vm: &Vm<F, T>,
        guest: impl FnOnce(&Held<'_, F>) -> R,
    ) -> Option<R> {
        self.line.mode.store(IN_GUEST, Ordering::Release);
        let result = self.holder.enter(&vm.stage2, Role::MAIN).map(|root| guest(&root));
        if self.line.mode.swap(OUTSIDE, Ordering::AcqRel) & TELLS != 0 {
            vm.stage2.came_out();
        }
        result
    }
}
