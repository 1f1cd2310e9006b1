//! What is told of a VMM that runs: only of what it has, and only within what was measured.

use mayfly_laws::{
    Call, Dimension, Document, Entry, Pair, Point, SCHEMA, Said, Series, Shape, Vmm,
};
use mayfly_record::Host;

#[path = "common/law.rs"]
mod common;

use common::law;

fn entry(call: Call, dimension: Dimension, shape: Shape, to: u64) -> Entry {
    let law = law(shape);
    let point = |n| Point { n, ..Point::default() };
    Entry {
        pair: Pair { call, dimension },
        series: Series { points: vec![point(1), point(to)], ..Series::default() },
        work: Some(law.clone()),
        law: Some(law),
        skipped: None,
    }
}

fn document(laws: Vec<Entry>) -> Document {
    Document {
        schema: SCHEMA.to_owned(),
        host: Host::default(),
        tick_ns: None,
        rounds: 5,
        seed: 1,
        settled_ns: 0,
        laws,
    }
}

const CREATE: Shape = Shape::Linear { base: 380_000.0, factor: 300.0 };
const FLAT: Shape = Shape::Constant { base: 90_000.0 };

fn told(vmm: Vmm, laws: Vec<Entry>, full: bool) -> String {
    let text = vmm.told(&document(laws), 79, full);
    assert!(text.lines().all(|line| line.len() <= 79), "{text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn create(to: u64) -> Vec<Entry> {
    vec![entry(Call::CreateVm, Dimension::Mappings, CREATE, to)]
}

#[test]
fn a_call_is_told_with_what_the_vmm_has() {
    let vmm = Vmm { mappings: Some(12_000), vms: Some(1), vcpus: Some(4) };
    assert_eq!(
        told(vmm, create(30_000), false),
        "With its 12,000 mappings, KVM_CREATE_VM takes about 4 ms (with 1 mapping, 380 us)."
    );
    let mut laws = create(30_000);
    laws.push(entry(Call::CloseVm, Dimension::Mappings, FLAT, 30_000));
    laws.push(entry(Call::CreateVcpu, Dimension::Vcpus, FLAT, 128));
    let full = told(vmm, laws.clone(), true);
    assert!(
        full.contains("mappings of the process makes no difference to the close of a VM."),
        "{full}"
    );
    assert!(full.contains("makes no difference to KVM_CREATE_VCPU."), "{full}");
    assert!(!told(vmm, laws, false).contains("no difference"));
}

#[test]
fn answers_have_the_numbers_that_are_told_and_a_verdict_that_names_each_case() {
    let vmm = Vmm { mappings: Some(12_000), vms: Some(1), vcpus: Some(4) };
    let mut laws = create(30_000);
    laws.push(entry(Call::CloseVm, Dimension::Mappings, CREATE, 5000));
    laws.push(entry(Call::CreateVcpu, Dimension::Vcpus, FLAT, 128));
    laws.push(Entry { law: None, ..entry(Call::CloseVm, Dimension::Vcpus, FLAT, 128) });
    let skipped = Some("no room".to_owned());
    laws.push(Entry { skipped, ..entry(Call::CreateVm, Dimension::Vms, FLAT, 128) });
    // Nobody knows how many it has of this.
    laws.push(entry(Call::AddSlot, Dimension::Slots, CREATE, 128));
    let answers = vmm.answers(&document(laws));
    let said: Vec<Said> = answers.iter().map(|answer| answer.said.clone()).collect();
    let expected = [
        Said::Grows { at_ns: 3_980_000, few: 1, few_ns: Some(380_300) },
        Said::Beyond { measured: 5000, measured_ns: 1_880_000 },
        Said::NotMeasured { why: "no room".to_owned() },
        Said::Same,
        Said::NoLaw,
    ];
    assert_eq!(said, expected);
    let json = serde_json::to_value(&answers).unwrap();
    let first = serde_json::json!({
        "call": "create-vm", "dimension": "mappings", "n": 12_000, "verdict": "grows",
        "at_ns": 3_980_000, "few": 1, "few_ns": 380_300,
    });
    assert_eq!(json[0], first);
    assert_eq!(json[2]["verdict"], "not-measured");
}

#[test]
fn nothing_is_told_beyond_what_was_measured_or_known() {
    let vmm = Vmm { mappings: Some(45_000), ..Vmm::default() };
    assert_eq!(
        told(vmm, create(30_000), false),
        "KVM_CREATE_VM takes 9.4 ms with 30,000 mappings. It has 45,000, and beyond what was measured nothing is known."
    );
    let none = "No call takes more by what it has, as far as laws were found.";
    assert_eq!(told(Vmm::default(), create(30_000), false), none);
    // A law of what is not known of a VMM says nothing of it.
    let slots = vec![entry(Call::AddSlot, Dimension::Slots, CREATE, 4096)];
    assert_eq!(told(vmm, slots, true), none);
    // That a constant was measured so far does not make it one further on, but nothing says that it grows.
    let flat = vec![entry(Call::CloseVm, Dimension::Mappings, FLAT, 30_000)];
    assert_eq!(told(vmm, flat, false), none);
}

#[test]
fn a_law_that_was_not_found_and_a_pair_that_was_not_measured_are_said() {
    let vmm = Vmm { mappings: Some(500), ..Vmm::default() };
    let mut laws = create(30_000);
    laws[0].law.as_mut().unwrap().holds = false;
    assert_eq!(
        told(vmm, laws.clone(), false),
        "Of KVM_CREATE_VM against mappings of the process, no law was found."
    );
    laws[0].skipped = Some("mmap: EPERM".into());
    let said = told(vmm, laws, false);
    assert_eq!(
        said,
        "KVM_CREATE_VM was not measured against mappings of the process: mmap: EPERM."
    );
    let step = Shape::Step { before: 1e5, last: 100.0, first: 1000.0, after: 2e6 };
    let laws = vec![entry(Call::CreateVm, Dimension::Mappings, step, 30_000)];
    assert!(told(vmm, laws, false).contains("takes about 100 us or 2 ms: between these"));
}

#[test]
fn other_vms_are_those_beside_the_one_that_a_call_is_of() {
    let laws = || {
        vec![
            entry(Call::CreateVm, Dimension::Vms, CREATE, 200_000),
            entry(Call::CloseVm, Dimension::Vms, CREATE, 200_000),
        ]
    };
    let said = told(Vmm { vms: Some(1001), ..Vmm::default() }, laws(), false);
    assert!(said.contains("With its 1,001 other VMs, KVM_CREATE_VM takes about 680 us"), "{said}");
    assert!(said.contains("With its 1,000 other VMs, the close of a VM takes"), "{said}");
    let one = Vmm { vms: Some(1), ..Vmm::default() };
    assert!(!told(one, laws(), true).contains("the close of a VM"));
}

#[test]
fn a_quick_measurement_is_of_what_there_is_more_than_one_of() {
    let names = |vmm: Vmm| vmm.pairs().into_iter().map(Pair::name).collect::<Vec<_>>();
    assert!(names(Vmm::default()).is_empty());
    let one = Vmm { mappings: Some(80), vms: Some(1), vcpus: Some(1) };
    assert_eq!(names(one), ["create-vm/mappings", "close-vm/mappings", "add-slot/mappings"]);
    let two = Vmm { mappings: None, vms: Some(2), vcpus: Some(4) };
    assert_eq!(names(two), ["create-vm/vms", "create-vcpu/vcpus", "close-vm/vcpus"]);
}
