//! A machine that is saved and loaded in the midst of its life, against the architecture, which knows nothing of that.

use std::cell::RefCell;

use mayfly_vgic::Config;
use proptest::prelude::*;

use crate::naive::{LINKED, SPIS, VCPUS};
use crate::state::{loaded, saved};
use crate::step::{Step, any_step};
use crate::{Machine, boot, config};

impl Machine<'_> {
    /// All vCPUs come out, and go on in another machine, which may have other list registers, or in a copy of it.
    fn reload(&mut self, list_registers: usize, copied: bool) {
        (0..VCPUS).for_each(|vcpu| self.leave(vcpu));
        let bytes = saved(&self.gic, &self.cpus).unwrap();
        let config = Config { vcpus: VCPUS, spis: SPIS, list_registers, linked: &[(LINKED, 30)] };
        let kicked = self.kicked;
        let (gic, cpus) =
            loaded(&bytes, config, Box::new(|vcpu| kicked.borrow_mut().push(vcpu)) as _).unwrap();
        assert_eq!(saved(&gic, &cpus).unwrap(), bytes);
        self.gic = if copied {
            let kick = Box::new(|vcpu| kicked.borrow_mut().push(vcpu)) as _;
            let copy = gic.try_copy(kick, &mut || ()).unwrap();
            assert_eq!(saved(&copy, &cpus).unwrap(), bytes);
            copy
        } else {
            gic
        };
        self.cpus = cpus;
        self.kicked.borrow_mut().clear();
    }
}

/// Steps, and whether the machine is loaded after them: with how many list registers, and whether in a copy.
type Batch = (Vec<Step>, Option<(usize, bool)>);

fn any_batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = prop::collection::vec(any_step(false), 1..4);
    prop::collection::vec((batch, prop::option::weighted(0.2, (1..=4_usize, any::<bool>()))), 1..60)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_machine_that_is_loaded_gives_each_vcpu_what_the_architecture_gives(
        booted in prop::bool::weighted(0.8),
        batches in any_batches(),
    ) {
        let kicked = RefCell::new(Vec::new());
        let mut machine = Machine::new(2, &kicked);
        if booted {
            boot(&mut machine);
        }
        for (batch, reload) in &batches {
            machine.batch(batch);
            if let Some((list_registers, copied)) = reload {
                machine.reload(*list_registers, *copied);
                machine.check();
            }
        }
        machine.check_registers();
    }
}
