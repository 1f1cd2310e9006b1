//! States of GICs: what guests have made of them is loaded, and what nobody could have made is not.

use mayfly_state::{Error, State, Writer};
use mayfly_vgic::{
    Config, CpuInterface, DISTRIBUTOR_STATE, NotCopied, VCPU_STATE, VcpuInside, Vgic,
};
use proptest::prelude::*;

use crate::state::{loaded, saved};
use crate::{Gic, SPIS, Step, VCPUS, any_step, check, config, settle, step};

const NOBODY: fn(usize) = |_| {};

const CONFIG: Config<'_> =
    Config { vcpus: VCPUS, spis: SPIS, list_registers: 4, linked: &[(27, 27)] };

/// All bits that `ICH_VMCR_EL2` has.
const VMCR: u64 = 0xfffc_021f;

/// A GIC after steps of its guest's, and its vCPUs, which are out.
fn after(steps: &[Step]) -> (Gic, Vec<CpuInterface>) {
    let gic = Vgic::try_new(CONFIG, NOBODY).unwrap();
    let mut cpus: Vec<_> = (0..VCPUS).map(|vcpu| gic.cpu_interface(vcpu).unwrap()).collect();
    let mut inside = [false; VCPUS];
    for each in steps {
        step(&gic, &mut cpus, &mut inside, each);
    }
    for cpu in &mut cpus {
        gic.leave(cpu);
        cpu.registers.vmcr &= VMCR;
    }
    (gic, cpus)
}

/// The guest goes on with a GIC that was loaded: everything arrives and ends.
fn go_on(gic: &Gic, cpus: &mut [CpuInterface], steps: &[Step]) {
    let mut inside = [false; VCPUS];
    for each in steps {
        step(gic, cpus, &mut inside, each);
        check(cpus);
    }
    settle(gic, cpus);
}

fn load(bytes: &[u8]) -> Result<(Gic, Vec<CpuInterface>), Error> {
    loaded(bytes, CONFIG, NOBODY)
}

/// What is in the sections of a state: that of the distributor, and those of vCPUs.
fn contents(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut sections = State::open(bytes).unwrap().sections();
    let mut all = Vec::new();
    for number in 0..=VCPUS as u32 {
        let section = match number {
            0 => sections.take(DISTRIBUTOR_STATE, 0),
            _ => sections.take(VCPU_STATE, number - 1),
        };
        let mut section = section.unwrap();
        let mut bytes = Vec::new();
        while let Ok(byte) = section.u8("byte") {
            bytes.push(byte);
        }
        all.push(bytes);
    }
    all
}

/// A state with that in its sections.
fn state(contents: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 0x1_0000];
    let mut writer = Writer::new(&mut bytes);
    for (number, contents) in (0..).zip(contents) {
        let (kind, number) =
            if number == 0 { (DISTRIBUTOR_STATE, 0) } else { (VCPU_STATE, number - 1) };
        writer.section(kind, number, |to| to.bytes(contents));
    }
    let len = writer.finish().unwrap();
    bytes.truncate(len);
    bytes
}

/// Where the first SPI's word is in a distributor's section, and that of SGI 0 in a vCPU's.
const FIRST_SPI: usize = 16;
const FIRST_SGI: usize = 0;

/// What is said of a GIC whose `section` has `value` at `at`.
fn with(section: usize, at: usize, value: &[u8]) -> Result<(), String> {
    let (gic, cpus) = after(&[]);
    let mut contents = contents(&saved(&gic, &cpus).unwrap());
    contents[section][at..at + value.len()].copy_from_slice(value);
    load(&state(&contents)).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_word_that_no_interrupt_could_have_is_refused_by_its_number() {
    let spi = |word: u64| with(0, FIRST_SPI + 8 * 3, &word.to_le_bytes());
    assert_eq!(spi(0xffff_fff8_02f8_003f), Ok(()), "all that an SPI may have, on vCPU 2");
    for (word, why) in [
        (1 << 6, "linked"),
        (1 << 7, "in a list register"),
        (1 << 9, "with a request"),
        (1 << 13, "recalled"),
        (1 << 15, "with a bit that there is not"),
        (0x04 << 16, "of a priority that there is not"),
        (3 << 24, "of a vCPU that there is not"),
        (0x7ff << 24 | 1 << 5, "active on a vCPU that there is not"),
    ] {
        let error = spi(word).expect_err(why);
        assert_eq!(error, format!("section `gic` 0 has {word:#x} as SPI of 35"));
    }
    let own = |intid: usize, word: u64| with(2, FIRST_SGI + 8 * intid, &word.to_le_bytes());
    assert_eq!(own(3, 0x00f8_01f8_002f), Ok(()), "an SGI of vCPU 1");
    assert_eq!(own(27, 1 << 6 | 1 << 4), Ok(()), "the linked one, taken");
    for (intid, word, why) in [
        (3, 0, "an SGI by level"),
        (3, 1 << 4 | 1 << 2, "an SGI with a line"),
        (27, 0, "not linked as it is here"),
        (26, 1 << 6, "linked as it is not here"),
        (20, 1 << 5, "active on another's vCPU"),
        (20, 2 << 24, "last of another's vCPU"),
        (20, 1 << 40, "routed"),
    ] {
        let error = own(intid, word).expect_err(why);
        assert_eq!(error, format!("section `gic-vcpu` 1 has {word:#x} as SGI or PPI of {intid}"));
    }
}

#[test]
fn a_gic_of_another_machine_is_refused() {
    let refused = |error: &str| Err(error.to_owned());
    assert_eq!(with(0, 0, &[4]), refused("section `gic` 0 has 0x4 as vCPUs"));
    assert_eq!(with(0, 4, &[41]), refused("section `gic` 0 has 0x29 as SPIs"));
    assert_eq!(with(0, 8, &[4]), refused("section `gic` 0 has 0x4 as GICD_CTLR"));
    assert_eq!(
        with(1, 32 * 8 + 8 + 32, &[2]),
        refused("section `gic-vcpu` 0 has 0x2 as GICR_WAKER")
    );
    let vmcr = FIRST_SGI + 32 * 8;
    assert_eq!(with(1, vmcr, &VMCR.to_le_bytes()), Ok(()));
    assert_eq!(with(1, vmcr, &[0x20]), refused("section `gic-vcpu` 0 has 0x20 as ICH_VMCR_EL2"));
}

#[test]
fn a_gic_with_a_vcpu_in_its_guest_is_not_saved() {
    let (gic, mut cpus) = after(&[]);
    gic.enter(&mut cpus[1]);
    assert_eq!(saved(&gic, &cpus), Err(VcpuInside { vcpu: 1 }), "though nothing is loaded");
    gic.leave(&mut cpus[1]);
    assert!(saved(&gic, &cpus).is_ok());
    // SPI 32, which goes to vCPU 0, which takes it.
    gic.write(mayfly_vgic::Frame::Distributor, 0, 4, 3);
    gic.write(mayfly_vgic::Frame::Distributor, 0x104, 4, 1);
    gic.set_spi(32, true).unwrap();
    cpus[0].registers.vmcr = 0xff00_0003;
    gic.enter(&mut cpus[0]);
    let mut buffer = [0; 0x1000];
    let error =
        Writer::new(&mut buffer).section(DISTRIBUTOR_STATE, 0, |to| gic.save_distributor(to));
    assert_eq!(error, Err(VcpuInside { vcpu: 0 }));
}

#[test]
fn a_gic_with_a_vcpu_in_its_guest_is_not_copied_and_one_whose_vcpus_are_out_is() {
    let (gic, mut cpus) = after(&[]);
    gic.write(mayfly_vgic::Frame::Distributor, 0, 4, 3);
    gic.write(mayfly_vgic::Frame::Distributor, 0x84, 4, 1);
    gic.write(mayfly_vgic::Frame::Distributor, 0x104, 4, 1);
    gic.set_spi(32, true).unwrap();
    cpus[0].registers.vmcr = 0xff00_0003;
    gic.enter(&mut cpus[0]);
    let inside = NotCopied::Inside(VcpuInside { vcpu: 0 });
    assert_eq!(gic.try_copy(NOBODY, &mut || ()).err(), Some(inside));
    gic.leave(&mut cpus[0]);
    let copy = gic.try_copy(NOBODY, &mut || ()).unwrap();
    // It is for the vCPU of the copy as well, which is told of it without looking at everything.
    let mut cpu = cpus[0].clone();
    assert!(copy.is_pending(&cpu));
    copy.enter(&mut cpu);
    assert_ne!(cpu.registers.lr[0], 0);
    copy.leave(&mut cpu);
    // What happens to one does not happen to the other.
    copy.set_spi(32, false).unwrap();
    assert!(gic.is_pending(&cpus[0]) && !copy.is_pending(&cpu));
    assert!(copy.heap_bytes() > 0 && copy.heap_bytes() == gic.heap_bytes());
}

proptest! {
    #![proptest_config(config())]

    /// Whatever a guest has made of it; and what is loaded is a GIC in which everything arrives and ends.
    #[test]
    fn what_is_loaded_is_what_was_saved(
        steps in prop::collection::vec(any_step(), 0..120),
        list_registers in 1..=16_usize,
        then in prop::collection::vec(any_step(), 0..60),
    ) {
        let (gic, cpus) = after(&steps);
        let bytes = saved(&gic, &cpus).unwrap();
        let config = Config { list_registers, ..CONFIG };
        let (gic, mut cpus) = loaded(&bytes, config, NOBODY).unwrap();
        prop_assert_eq!(saved(&gic, &cpus).unwrap(), bytes);
        go_on(&gic, &mut cpus, &then);
    }

    #[test]
    fn a_forged_gic_is_refused_or_works(
        steps in prop::collection::vec(any_step(), 0..40),
        forged in prop::collection::vec(
            (0..=VCPUS, any::<prop::sample::Index>(), prop_oneof![Just(1_u8), Just(0xf8), any::<u8>()]),
            1..4,
        ),
        len in prop_oneof![9 => Just(0_isize), 1 => -9..9_isize],
        then in prop::collection::vec(any_step(), 0..60),
    ) {
        let (gic, cpus) = after(&steps);
        let mut contents = contents(&saved(&gic, &cpus).unwrap());
        for (section, at, byte) in forged {
            let at = at.index(contents[section].len());
            contents[section][at] = byte;
        }
        let last = contents.last_mut().unwrap();
        last.resize(last.len().saturating_add_signed(len), 0);
        let bytes = state(&contents);
        if let Ok((gic, mut cpus)) = load(&bytes) {
            prop_assert_eq!(saved(&gic, &cpus).unwrap(), bytes);
            go_on(&gic, &mut cpus, &then);
        }
    }
}
