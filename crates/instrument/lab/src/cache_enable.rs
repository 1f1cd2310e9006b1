//! The experiment `cache-enable`: what is flushed when vCPUs turn their caches on, and whether guests then read stale data.

mod answer;
mod bring_up;
mod cost;
mod courses;
mod design;
mod kvm;
mod names;
mod needs;
mod rows;
mod sizes;
mod verdict;

use anyhow::Context;
use mayfly_machine::cache::Lines;
use mayfly_record::{Backend, Host, ResultRow, units};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::needs::Needs;
use crate::params::{Bound, Size};
use crate::progress::Progress;
use crate::turns::{SEED, seed, turns};

use bring_up::{Ground, Shape};
use cost::LineCost;
use courses::{Course, courses};
use design::Design;
use kvm::Ups;
use names::{LINES, NAME, ROUNDS, row};
use rows::Row;

/// The experiment `cache-enable`.
pub(crate) struct CacheEnable;

impl Experiment for CacheEnable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "what is flushed when vCPUs turn caches on, and which rules give stale data"
    }

    fn about(&self) -> &'static str {
        "On arm64 without FEAT_S2FWB, a vCPU whose MMU is off reads and writes memory
past the caches, so memory and caches can disagree. KVM cleans and invalidates
all memory that the VM has mapped whenever a vCPU turns its caches on
(every-vcpu). With 64 vCPUs and 128 GiB, this is most of a boot of 33 s. A
proposal of April 2025 does so for vCPU 0 alone (vcpu0-only, 5 s). The answer
was that vCPU 0 is not special, and that the first vCPU would be the better
rule (first-vcpu). But with either rule, a guest no longer finds with its
caches on what it wrote with them off.

Mayfly flushes only what was written. vCPUs whose caches are off run on a root
of their own, where Mayfly notes the first write to each page.

A boot vCPU writes 256 KiB with its caches off, each line of it, and turns them
on. It then writes three quarters of the memory, line by line; this is not part
of bring_up. Then each other vCPU in turn writes 8 KiB, turns its caches on,
and reads what it wrote. After each of them the boot vCPU writes some more of
the memory, so that a flush finds cached lines. The machine's tables are
arm64's. The lines are those of the host's processor, really cleaned and
invalidated, if the host has twice the memory. Otherwise, and for 128 GiB by
default, they are counted, and bring_up is modelled: the time that it took,
plus for each line the time that one line takes here.

Lines that are modelled to do the worst that caches may (lines oracle) show
whether a rule is right: every line may be filled at any time, and none is
written back before it is cleaned. Each scenario is something that guests rely
on. The two proposals read stale data in some scenarios, and the report says in
which. KVM's rule and Mayfly's must read none.

On arm64's KVM, a guest of a few instructions does the same, and its vCPUs pay
for what the running kernel flushes. On x86 there is nothing to run, because
guests there cannot bypass the caches."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                backend: Backend::Machine,
                name: "every-vcpu",
                summary: "flush all mapped memory when any vCPU turns its caches on (KVM)",
            },
            Variant {
                backend: Backend::Machine,
                name: "vcpu0-only",
                summary: "flush all mapped memory when vCPU 0 turns its caches on (proposed in 2025)",
            },
            Variant {
                backend: Backend::Machine,
                name: "first-vcpu",
                summary: "flush all mapped memory when the first vCPU turns its caches on",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "flush only what was written with caches off",
            },
            Variant::KERNEL,
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric {
                name: rows::BRING_UP,
                summary: "all vCPUs, until the last has its caches on and has read; without set_up",
            },
            Metric { name: rows::SECONDARY, summary: "one vCPU of those after the first" },
            Metric {
                name: rows::MODELLED_BRING_UP,
                summary: "as bring_up, with what the counted lines would take",
            },
            Metric { name: rows::MODELLED_SECONDARY, summary: "as secondary, likewise" },
            Metric {
                name: rows::LINES_FLUSHED,
                summary: "lines flushed for all vCPUs of a VM, really or counted",
            },
            Metric {
                name: rows::SET_UP,
                summary: "the first vCPU's writes to all other memory, which map and clean it",
            },
        ]
    }

    fn headlines(&self) -> &'static [&'static str] {
        &[rows::BRING_UP, rows::MODELLED_BRING_UP, rows::LINES_FLUSHED]
    }

    fn levels(&self) -> &'static [&'static str] {
        &["scenarios", "scenarios_stale", "modelled_ps_a_line"]
    }

    fn answer(&self, rows: &[ResultRow], host: &Host) -> Answer {
        answer::answer(rows, host)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: Bound::VCPUS.name,
                default: "64",
                summary: "vCPUs of the VM: one number after another",
            },
            Param {
                name: Size::PARAM,
                default: "256MiB, and 128GiB in blocks",
                summary: "sizes of a VM's memory; above half of the host's modelled, or skipped on KVM",
            },
            Param {
                name: Bound::ROUNDS.name,
                default: "12",
                summary: "VMs of each variant, which take turns",
            },
        ]
    }

    fn why_not_on_kvm_of(&self, arch: &str) -> Option<String> {
        match arch {
            "aarch64" => None,
            "x86_64" => Some("guests on x86 cannot bypass the caches".to_owned()),
            _ => Some(format!("the guest for KVM is for arm64, and this host is {arch}")),
        }
    }

    fn needs(&self, request: &Request<'_>) -> Needs {
        needs::of(request)
    }

    fn counts(&self) -> &'static [&'static str] {
        &[rows::LINES_FLUSHED]
    }

    fn left_out(&self, request: &Request<'_>) -> Vec<String> {
        kvm::left_out(request)
    }

    fn run(
        &self,
        request: &Request<'_>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Vec<ResultRow>> {
        let designs: Vec<_> =
            request.variants_on(Backend::Machine).filter_map(Design::of).collect();
        let courses = courses(request);
        let mut rows = Vec::new();
        if !designs.is_empty() {
            rows.extend(verdict::rows(&designs, progress)?);
        }
        let counts = |course: &Course| course.machine && course.shape.lines == Lines::Counted;
        let line = courses.iter().any(counts).then(cost::of_a_line).transpose()?;
        for course in courses {
            rows.extend(in_turn(course, &designs, line, request, progress)?);
        }
        Ok(rows)
    }
}

/// The rows of one shape: all designs and KVM, in turn. Lines take so long where they are but counted.
fn in_turn(
    course: Course,
    designs: &[Design],
    line: Option<LineCost>,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let Course { shape, machine, kvm } = course;
    let Shape { vcpus, memory, mapping, lines } = shape;
    let (rounds, seed) = (request.params.rounds.unwrap_or(ROUNDS), seed(request));
    let designs = if machine { designs } else { &[] };
    let variants: Vec<_> = request.variants_on(Backend::Kvm).filter(|_| kvm).collect();
    let mut on_kvm: Vec<_> =
        variants.iter().map(|_| Ups::new(shape)).collect::<anyhow::Result<_>>()?;
    let ground = machine.then(|| Ground::new(shape)).transpose()?;
    let mut rows: Vec<_> = designs.iter().map(|_| Row::default()).collect();
    let count = designs.len() + on_kvm.len();

    let all = units::things(vcpus.into(), "vCPU");
    let title = format!("{NAME}, {all}, {memory} in {}", mapping.name());
    progress.begin(&title, u64::from(rounds) * count as u64);
    for index in turns(rounds, count, seed) {
        match (designs.get(index), &ground) {
            (Some(design), Some(ground)) => {
                rows[index].note(ground.bring_up(*design).with_context(|| design.name())?);
            }
            _ => on_kvm[index - designs.len()].bring_up()?,
        }
        progress.step();
    }
    progress.finish();
    let line = line.filter(|_| lines == Lines::Counted);
    let row = |backend, variant| row(backend, variant, shape, rounds).param(SEED, seed);
    let machines = designs.iter().zip(rows).map(|(design, measured)| {
        let row = row(Backend::Machine, design.name())
            .param(LINES, if line.is_some() { "counted" } else { "real" });
        measured.report(row, *design, shape, line)
    });
    let kvms =
        variants.iter().zip(on_kvm).map(|(variant, ups)| ups.report(row(Backend::Kvm, variant)));
    Ok(machines.chain(kvms).collect())
}

#[cfg(test)]
mod tests;
