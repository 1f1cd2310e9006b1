//! One thread's operations against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Activated, VcpuMark, VmidTag, Vmids};
use proptest::prelude::*;

use super::Asked;

const BITS: u32 = 2;
const NUMBERS: usize = (1 << BITS) - 1;
const CPUS: usize = 3;
const VCPUS: usize = 4;
const ROOTS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Enter { cpu: usize, vcpu: usize, root: usize },
    Retire { root: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..CPUS, 0..VCPUS, 0..ROOTS)
            .prop_map(|(cpu, vcpu, root)| Step::Enter { cpu, vcpu, root }),
        1 => (0..ROOTS).prop_map(|root| Step::Retire { root }),
    ]
}

/// Which root has which number, which CPU names which, and who was where.
#[derive(Default)]
struct Model {
    assigned: BTreeMap<usize, Vmid>,
    named: [Option<usize>; CPUS],
    last: BTreeMap<(usize, usize), usize>,
    forgotten: usize,
    vacated: Vec<(u32, Vmid)>,
}

impl Model {
    /// Checks `answer` to a CPU that enters `root`.
    fn enter(&mut self, cpu: usize, vcpu: usize, root: usize, answer: Activated) {
        let before = self.last.insert((root, cpu), vcpu);
        assert_eq!(answer.flush, before.is_some_and(|before| before != vcpu));
        let number = answer.vmid;
        self.vacate(cpu, Some(root));
        if let Some(assigned) = self.assigned.get(&root) {
            assert_eq!(number, *assigned);
        } else {
            if self.assigned.len() == NUMBERS {
                let named: BTreeSet<_> = self.named.iter().flatten().collect();
                self.assigned.retain(|root, _| named.contains(root));
                self.forgotten += 1;
            }
            assert!((1..=NUMBERS).contains(&usize::from(number.0)), "{number:?}");
            assert!(self.assigned.values().all(|taken| *taken != number), "{number:?} is taken");
            self.assigned.insert(root, number);
        }
        self.named[cpu] = Some(root);
    }

    fn vacate(&mut self, cpu: usize, unless: Option<usize>) {
        if self.named[cpu] != unless
            && let Some(root) = self.named[cpu].take()
        {
            self.vacated.push((cpu as u32, self.assigned[&root]));
        }
    }
}

struct System {
    asked: Asked,
    vmids: Vmids,
    vcpus: [VcpuMark; VCPUS],
    roots: [VmidTag; ROOTS],
    model: Model,
}

impl System {
    fn new() -> Self {
        let asked = Asked::default();
        let vmids = asked.vmids(BITS, CPUS as u32);
        Self {
            vcpus: std::array::from_fn(|_| vmids.vcpu()),
            roots: std::array::from_fn(|_| vmids.tag().unwrap()),
            model: Model::default(),
            asked,
            vmids,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Enter { cpu, vcpu, root } => {
                // SAFETY: no CPU keeps a translation.
                let answer = unsafe { self.roots[root].activate(cpu as u32, self.vcpus[vcpu]) };
                self.model.enter(cpu, vcpu, root, answer);
            }
            Step::Retire { root } => {
                // SAFETY: as above.
                unsafe {
                    self.vmids.leave(&self.roots[root]);
                    self.vmids.retire(&self.roots[root]);
                }
                for cpu in 0..CPUS {
                    if self.model.named[cpu] == Some(root) {
                        self.model.vacate(cpu, None);
                    }
                }
                self.model.assigned.remove(&root);
            }
        }
        for (root, tag) in self.roots.iter().enumerate() {
            assert_eq!(self.vmids.assigned(tag), self.model.assigned.get(&root).copied());
        }
        assert_eq!(self.asked.forgotten(), self.model.forgotten);
        // One that renews a number which it has kept may be asked to vacate it.
        let asked = self.asked.take_vacated();
        let vacated = std::mem::take(&mut self.model.vacated);
        assert!(vacated.iter().all(|one| asked.contains(one)), "{vacated:?} of {asked:?}");
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
