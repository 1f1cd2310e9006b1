//! The experiment `device-registration`: what a caller waits for after a device was registered.

mod answer;
mod backend;
mod chance;
mod counted;
mod disposal;
mod doorbell;
mod kvm;
mod layout;
mod life;
mod machine;
mod needs;
mod shape;
mod short;
mod source;
mod timed;

use std::time::Duration;

use anyhow::Context;
use mayfly_record::{Backend, Host, ResultRow};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::needs::Needs;
use crate::params::{Bound, Order};
use crate::progress::Progress;
use crate::turns::{SEED, seed};
use crate::work;

use backend::Subject;
use chance::Chance;
use disposal::Disposal;
use kvm::KvmSubject;
use machine::MachineSubject;
use needs::{DEVICES, VCPUS, VMS};
use shape::Shape;
use short::Short;
use timed::{TIMED, Timings};

const NAME: &str = "device-registration";

/// Ticks after which nothing is left of what a VM's start has armed.
const AGE: u32 = 4;

/// VMs of the builder's, on KVM.
const BUILDER: &str = "builder";

/// The experiment `device-registration`.
pub(crate) struct DeviceRegistration;

impl Experiment for DeviceRegistration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "how long a VM's next change waits after a device was registered"
    }

    fn about(&self) -> &'static str {
        "A vCPU finds a device on an I/O bus in an array that it reads under SRCU. To
register a device, KVM publishes a copy of the array, and frees the old one
after a grace period. The question is who waits for that grace period.

Each VM is created, and gets an interrupt controller, devices, memory and vCPUs
in one of three orders. It runs to its first MMIO exit, gets another memslot,
and loses a device. The last two happen again while its vCPUs run and write to
a device. Then the VM is destroyed. Every call is timed. The calls while vCPUs
run have two groups of metrics: busy_, of calls that come at a random moment
within a tick, and back_to_back_, of calls that come right after a
registration. The latter wait longest.

The machine's variants: Linux up to v6.17 synchronised at each registration
(synchronize). v6.18 defers (call-srcu). Then the next caller that must
synchronise waits for a timer that the deferred callback armed. Two designs
were proposed on the KVM list: to defer only if there are vCPUs
(keyed-on-vcpus), and to expedite the deferred callback (call-srcu-expedited).
All four run on an SRCU domain with the delays of Linux v6.18, whose readers
execute a fence, as Linux's readers do. On KVM there are two variants. kernel
makes the calls in the order that --order says. builder has VmBuilder make
them, in an order of its own, and measures only a start and an end.

Variants take turns, one VM each, in an order that is shuffled every round. VMs
start at random moments within two ticks. In a tight loop, each VM would start
where the wait of the last one ended, and the median would be the length of the
loop. Before each timed VM, another VM is created, run (on the machine alone)
and destroyed untimed, so that the timed calls do not pay for cold code. On the
machine, three threads stay on one processor, because Linux has a work queue on
each: the thread that measures, the one that runs grace periods, and, for the
designs that are paced as Linux, another for callbacks. vCPUs and KVM are not
pinned."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                backend: Backend::Machine,
                name: "synchronize",
                summary: "each registration waits for an expedited grace period (Linux before v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: "call-srcu",
                summary: "each registration defers, with a normal grace period (Linux v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: "keyed-on-vcpus",
                summary: "synchronize while there are no vCPUs, call-srcu from then on",
            },
            Variant {
                backend: Backend::Machine,
                name: "call-srcu-expedited",
                summary: "each registration defers, with an expedited grace period",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "callbacks share grace periods; a caller that waits drives a grace period of its own",
            },
            Variant::KERNEL,
            Variant {
                backend: Backend::Kvm,
                name: BUILDER,
                summary: "the running kernel's KVM, by the builder: the order that waits least here; start and end alone",
            },
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &TIMED
    }

    fn headlines(&self) -> &'static [&'static str] {
        &["register", "first_memslot", "total", "back_to_back_memslot", work::TOTAL]
    }

    fn answer(&self, rows: &[ResultRow], host: &Host) -> Answer {
        answer::answer(rows, host)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: Bound::VMS.name,
                default: "100",
                summary: "VMs of each variant, in each order",
            },
            Param {
                name: Bound::DEVICES.name,
                default: "8",
                summary: "ioeventfds registered in each VM",
            },
            Param {
                name: Bound::VCPUS.name,
                default: "2",
                summary: "vCPUs of each VM: one number after another",
            },
            Param {
                name: Bound::HZ.name,
                default: "the host's",
                summary: "ticks a second of the machine's Linux-paced variants",
            },
            Param {
                name: Order::PARAM,
                default: "all three",
                summary: "what comes first in a VM's life",
            },
        ]
    }

    fn needs(&self, request: &Request<'_>) -> Needs {
        needs::of(request)
    }

    fn run(
        &self,
        request: &Request<'_>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Vec<ResultRow>> {
        let params = request.params;
        let devices = params.devices.unwrap_or(DEVICES);
        let mut rows = Vec::new();
        for vcpus in params.vcpus_or(&[VCPUS]) {
            for order in params.orders_or_all() {
                rows.extend(lives(request, order, Shape { devices, vcpus }, progress)?);
            }
        }
        Ok(rows)
    }
}

/// The rows of one order: all variants, in turn.
fn lives(
    request: &Request<'_>,
    order: Order,
    shape: Shape,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let vms = request.params.vms.unwrap_or(VMS);
    let mut runs = runs(request, shape)?;
    progress.begin(&format!("{NAME}, {order}"), u64::from(vms) * runs.len() as u64);
    let seed = seed(request);
    let mut chance = Chance::new(seed);
    for _ in 0..vms {
        // So that none of them always follows the same other, whose traces it would find in the caches.
        chance.shuffle(&mut runs);
        for run in &mut runs {
            chance.pause(run.longest_pause());
            run.live(order, shape, &mut chance)
                .with_context(|| format!("{} {order}", run.variant))?;
            progress.step();
        }
    }
    runs.sort_by_key(|run| run.place);
    progress.finish();
    Ok(runs.into_iter().map(|run| run.row(order, shape, vms, seed)).collect())
}

/// One variant on its way through one order.
struct Run {
    /// Its place among the rows.
    place: usize,
    backend: Backend,
    variant: &'static str,
    hz: u32,
    /// What whole lives are lived on, if any are.
    subject: Option<Box<dyn Subject>>,
    /// What starts and ends alone are made by, if any are.
    short: Option<Short>,
    timings: Timings,
}

/// The requested variants, in the order in which they take turns.
fn runs(request: &Request<'_>, shape: Shape) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut add = |backend, variant, hz, subject, short| {
        let (place, timings) = (runs.len(), Timings::default());
        runs.push(Run { place, backend, variant, hz, subject, short, timings });
    };
    for variant in request.variants_on(Backend::Machine) {
        let disposal = match variant {
            "synchronize" => Disposal::Synchronize,
            "call-srcu" => Disposal::Call,
            "keyed-on-vcpus" => Disposal::KeyedOnVcpus,
            "call-srcu-expedited" => Disposal::CallExpedited,
            _ => Disposal::Mayfly,
        };
        let subject = MachineSubject::new(disposal, request.hz(), shape)?;
        let subject: Box<dyn Subject> = Box::new(subject);
        add(Backend::Machine, variant, request.hz(), Some(subject), None);
    }
    for variant in request.variants_on(Backend::Kvm) {
        let hz = request.host.hz.unwrap_or_else(|| request.hz());
        if variant == BUILDER {
            add(Backend::Kvm, variant, hz, None, Some(Short::built()?));
        } else {
            let subject: Box<dyn Subject> = Box::new(KvmSubject::new(shape)?);
            add(Backend::Kvm, variant, hz, Some(subject), Some(Short::ordered()?));
        }
    }
    Ok(runs)
}

impl Run {
    /// Two ticks: any phase of the tick is as likely as any other.
    fn longest_pause(&self) -> Duration {
        Duration::from_secs(2) / self.hz
    }

    fn live(&mut self, order: Order, shape: Shape, chance: &mut Chance) -> anyhow::Result<()> {
        let tick = Duration::from_secs(1) / self.hz;
        let phase = &mut || chance.pause(tick);
        if let Some(subject) = &mut self.subject {
            life::live(&mut **subject, order, shape, &mut self.timings, phase)?;
        }
        if let Some(short) = &self.short {
            short.live(order, shape, &mut self.timings, tick * AGE, phase)?;
        }
        self.timings.end_round();
        Ok(())
    }

    fn row(self, order: Order, shape: Shape, vms: u32, seed: u64) -> ResultRow {
        let row = ResultRow::new(NAME, self.backend, self.variant)
            .param(Order::PARAM, order.name())
            .param(Bound::VMS.name, vms)
            .param(Bound::DEVICES.name, shape.devices)
            .param(Bound::VCPUS.name, shape.vcpus)
            .param(Bound::HZ.name, self.hz)
            .param(SEED, seed);
        let row = self.timings.report(row);
        let row = self.subject.iter().fold(row, |row, subject| subject.report(row));
        let plan = self.short.as_ref().and_then(|short| short.plan(shape).ok().flatten());
        let row = match plan {
            Some(plan) => row.finding("plan", plan),
            None => row,
        };
        // What the source measured is Linux v6.18's, and the running kernel's if that is as it.
        if self.variant == Variant::KERNEL.name || self.variant == "call-srcu" {
            source::compared(row, order, self.hz)
        } else {
            row
        }
    }
}
