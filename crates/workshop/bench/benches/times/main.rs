//! Mayfly's times beside its peers', in one table. `docs/bench.md` explains the rows.

mod here;
mod lookups;
mod readers;
mod tables;
mod waits;
mod writers;

use std::sync::Arc;

use mayfly_bench::companion::Companion;
use mayfly_bench::liburcu::Registered;
use mayfly_bench::processors::Processors;
use mayfly_bench::table::Table;
use mayfly_bench::{bus, qsbr, sections};
use mayfly_memslot::USER_SLOTS;
use mayfly_platform::{Host, Platform};

use here::Here;
use lookups::{finding_devices, finding_slots};
use readers::{entering_and_leaving, exiting, reading};
use tables::{faulting, mapping, translating};
use waits::{interrupting_a_guest, waiting_beside_a_sleeper, waiting_for_readers};
use writers::{deferring, writing_in_a_crowd};

fn main() {
    let host: Arc<dyn Platform> = Arc::new(Host::new());
    let domain = sections::domain(Arc::clone(&host));
    let reader = sections::reader(&domain);
    let here =
        Here { host, domain, reader, liburcu: Registered::new(), qsbr: qsbr::Registered::new() };
    // From here on this process has two threads, as every VM has several: with one, `membarrier` would cost nothing.
    let processors = Processors::two();
    let companion = Companion::new(processors, sections::reader(&here.domain));

    let barrier = |has_it| if has_it { "membarrier" } else { "fences" };
    println!(
        "\nreaders are ordered by {} (mayfly), {} (liburcu)\n",
        barrier(!here.domain.is_fenced()),
        barrier(here.liburcu.uses_membarrier()),
    );
    let mut table = Table::new();
    entering_and_leaving(&here, &mut table);
    reading(&here, &mut table);
    exiting::<1>(&here, &mut table);
    exiting::<8>(&here, &mut table);
    waiting_for_readers(&here, &companion, &mut table);
    waiting_beside_a_sleeper(&here, processors, &mut table);
    interrupting_a_guest(&here, processors, &mut table);
    deferring(&here, processors, &mut table);
    for devices in [bus::FEW, bus::MANY] {
        finding_devices(&here, devices, &mut table);
    }
    for slots in [1, 8, 64, 512, USER_SLOTS] {
        finding_slots(&here, slots, &mut table);
    }
    writing_in_a_crowd(&here, &mut table);
    mapping(&here, &mut table);
    translating(&here, &mut table);
    faulting(processors, &mut table);
    table.finish();
}
