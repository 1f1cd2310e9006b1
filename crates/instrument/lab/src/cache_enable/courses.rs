//! Which shapes are run, and which of them by the machine and KVM in turn.

use mayfly_machine::cache::Lines;
use mayfly_record::{Backend, Limits};

use super::bring_up::Shape;
use super::kvm;
use super::names::VCPUS;
use super::sizes::sizes;
use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::params::Size;

/// VMs of one shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) shape: Shape,
    pub(super) machine: bool,
    pub(super) kvm: bool,
}

/// What the machine runs of a size.
type OfMachine = (Size, &'static [Mapping], Lines);

/// All of them.
pub(super) fn courses(request: &Request<'_>) -> Vec<Course> {
    let available = Limits::gather().available();
    let runs = |backend| request.variants_on(backend).next().is_some();
    let machine = if runs(Backend::Machine) { sizes(request) } else { Vec::new() };
    let kvm = if runs(Backend::Kvm) { kvm::sizes(request) } else { Vec::new() };
    let vcpus = request.params.vcpus_or(&VCPUS);
    courses_of(&machine, &kvm, &vcpus, |size| {
        available.is_none_or(|available| size.bytes() <= available / 4)
    })
}

/// The machine's in their order, KVM's VMs of the same shape in turn with them; then what KVM alone has, or has by itself
/// since there is no room for `both` at a time.
fn courses_of(
    machine: &[OfMachine],
    kvm: &[Size],
    vcpus: &[u32],
    both: impl Fn(Size) -> bool,
) -> Vec<Course> {
    let mut courses: Vec<Course> = Vec::new();
    for &(memory, mappings, lines) in machine {
        for &mapping in mappings {
            for &vcpus in vcpus {
                let shape = Shape { vcpus, memory, mapping, lines };
                let kvm = kvm.contains(&memory) && both(memory);
                courses.push(Course { shape, machine: true, kvm });
            }
        }
    }
    let in_turn: Vec<_> = courses.iter().filter(|course| course.kvm).map(same).collect();
    for &memory in kvm {
        for mapping in Mapping::ALL {
            for &vcpus in vcpus {
                // Their lines are the processor's.
                let shape = Shape { vcpus, memory, mapping, lines: Lines::Real };
                let course = Course { shape, machine: false, kvm: true };
                if !in_turn.contains(&same(&course)) {
                    courses.push(course);
                }
            }
        }
    }
    courses
}

/// What courses have in common that are run in turn.
fn same(course: &Course) -> (u32, Size, Mapping) {
    (course.shape.vcpus, course.shape.memory, course.shape.mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size = Size::blocks(128);
    const LARGE: Size = Size::blocks(1 << 16);

    fn runs(machine: &[OfMachine], kvm: &[Size], both: bool) -> Vec<(Size, Mapping, bool, bool)> {
        let courses = courses_of(machine, kvm, &[64], |_| both);
        let of = |course: &Course| {
            (course.shape.memory, course.shape.mapping, course.machine, course.kvm)
        };
        courses.iter().map(of).collect()
    }

    #[test]
    fn kvms_vms_take_turns_with_the_machines_of_the_same_shape() {
        let machine: [OfMachine; 2] =
            [(SMALL, &Mapping::ALL, Lines::Real), (LARGE, &[Mapping::Blocks], Lines::Counted)];
        assert_eq!(
            runs(&machine, &[SMALL], true),
            [
                (SMALL, Mapping::Pages, true, true),
                (SMALL, Mapping::Blocks, true, true),
                (LARGE, Mapping::Blocks, true, false),
            ]
        );
    }

    #[test]
    fn each_runs_once_where_only_one_of_them_can() {
        let machine: [OfMachine; 1] = [(LARGE, &[Mapping::Blocks], Lines::Counted)];
        let apart = [
            (LARGE, Mapping::Blocks, true, false),
            (SMALL, Mapping::Pages, false, true),
            (SMALL, Mapping::Blocks, false, true),
        ];
        assert_eq!(runs(&machine, &[SMALL], true), apart);
        assert_eq!(runs(&machine, &[], true), apart[..1]);
        assert_eq!(runs(&[], &[SMALL], true), apart[1..]);
    }

    #[test]
    fn where_there_is_no_room_for_both_at_a_time_kvms_come_after() {
        let machine: [OfMachine; 1] = [(SMALL, &[Mapping::Pages], Lines::Real)];
        assert_eq!(
            runs(&machine, &[SMALL], false),
            [
                (SMALL, Mapping::Pages, true, false),
                (SMALL, Mapping::Pages, false, true),
                (SMALL, Mapping::Blocks, false, true),
            ]
        );
    }
}
