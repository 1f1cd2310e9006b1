//! One thread's operations against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{ActiveVmid, AllVmidsActive, VmidTag, Vmids};
use proptest::prelude::*;

use super::Forgotten;

const BITS: u32 = 2;
const NUMBERS: usize = (1 << BITS) - 1;
const VCPUS: usize = 4;
const ROOTS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Activate { vcpu: usize, root: usize },
    Deactivate { vcpu: usize },
    Retire { root: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..VCPUS, 0..ROOTS).prop_map(|(vcpu, root)| Step::Activate { vcpu, root }),
        3 => (0..VCPUS).prop_map(|vcpu| Step::Deactivate { vcpu }),
        1 => (0..ROOTS).prop_map(|root| Step::Retire { root }),
    ]
}

/// Which root has which number, and who runs where.
#[derive(Default)]
struct Model {
    assigned: BTreeMap<usize, Vmid>,
    active: [Option<usize>; VCPUS],
    forgotten: usize,
}

impl Model {
    /// Checks `answer` to a vCPU that activates `root`.
    fn activate(&mut self, vcpu: usize, root: usize, answer: Result<Vmid, AllVmidsActive>) {
        self.active[vcpu] = None;
        if let Some(number) = self.assigned.get(&root) {
            assert_eq!(answer, Ok(*number));
            self.active[vcpu] = Some(root);
            return;
        }
        if self.assigned.len() == NUMBERS {
            let running: BTreeSet<_> = self.active.iter().flatten().collect();
            if running.len() == NUMBERS {
                assert_eq!(answer, Err(AllVmidsActive));
                return;
            }
            self.assigned.retain(|root, _| running.contains(root));
            self.forgotten += 1;
        }
        let number = answer.unwrap();
        assert!((1..=NUMBERS).contains(&usize::from(number.0)), "{number:?}");
        assert!(self.assigned.values().all(|taken| *taken != number), "{number:?} is taken");
        self.assigned.insert(root, number);
        self.active[vcpu] = Some(root);
    }
}

struct System {
    forgotten: Forgotten,
    vmids: Vmids,
    vcpus: [ActiveVmid; VCPUS],
    roots: [VmidTag; ROOTS],
    model: Model,
}

impl System {
    fn new() -> Self {
        let forgotten = Forgotten::default();
        let vmids = forgotten.vmids(BITS);
        Self {
            vcpus: std::array::from_fn(|_| vmids.register().unwrap()),
            roots: std::array::from_fn(|_| VmidTag::new()),
            model: Model::default(),
            forgotten,
            vmids,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Activate { vcpu, root } => {
                let answer = self.vcpus[vcpu].activate(&self.roots[root]);
                self.model.activate(vcpu, root, answer);
            }
            Step::Deactivate { vcpu } => {
                self.vcpus[vcpu].deactivate();
                self.model.active[vcpu] = None;
            }
            Step::Retire { root } => {
                if !self.model.active.contains(&Some(root)) {
                    self.vmids.retire(&self.roots[root]);
                    self.model.assigned.remove(&root);
                }
            }
        }
        for (root, tag) in self.roots.iter().enumerate() {
            assert_eq!(self.vmids.assigned(tag), self.model.assigned.get(&root).copied());
        }
        assert_eq!(self.forgotten.count(), self.model.forgotten);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_sequence_of_operations_does_what_a_naive_table_does(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut system = System::new();
        for step in &steps {
            system.step(step);
        }
    }
}
