//! APICs that are saved and loaded in the midst of their lives, against the manuals, which know nothing of that.

use std::cell::RefCell;

use proptest::prelude::*;

use crate::naive::VCPUS;
use crate::state::{loaded, saved};
use crate::{Beside, CONFIG, Step, any_step, boot, config};

impl Beside<'_> {
    /// Others go on in their place: with as many as before, which have a notice each.
    fn reload(&mut self) {
        let bytes = saved(&self.vapic, &self.apics).unwrap();
        let kicked = self.kicked;
        let kick = Box::new(|vcpu| kicked.borrow_mut().push(vcpu)) as _;
        (self.vapic, self.apics) = loaded(&bytes, CONFIG, kick).unwrap();
        assert_eq!(saved(&self.vapic, &self.apics).unwrap(), bytes);
        self.kicked.replace((0..VCPUS).collect());
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn apics_that_are_loaded_give_each_vcpu_what_the_manuals_give_it(
        x2apic in any::<bool>(),
        steps in prop::collection::vec((any_step(), prop::bool::weighted(0.1)), 0..150),
    ) {
        let kicked = RefCell::new(Vec::new());
        let mut beside = Beside::new(&kicked);
        boot(&mut beside);
        for vcpu in 0..VCPUS {
            beside.step(&Step::Base(vcpu, if x2apic { 0xfee0_0c00 } else { 0xfee0_0800 }));
        }
        for (step, is_reloaded) in &steps {
            beside.step(step);
            if *is_reloaded {
                beside.reload();
            }
            beside.check();
        }
        beside.check_registers();
    }
}
