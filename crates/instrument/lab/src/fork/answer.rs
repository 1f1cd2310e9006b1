//! The answer of `fork`: what each design costs on this host, and what to do.

use mayfly_record::{ResultRow, units};

use super::names::{
    AT_ONCE, COPY, FIRST_EXIT, FORKS_AT_ONCE, MAP_PRIVATE, OWN_IDLE, PARENT, PREFETCH, REQUESTS,
    USERFAULT,
};
use crate::answers::Answer;
use crate::experiment::Variant;
use crate::params::{Bound, Size};
use crate::rows::{Rows, times};

/// The request that a person reads of: the one in the middle.
const ASKED: usize = 1;

/// What forks cost here, by design, and what to do.
pub(super) fn answer(rows: &[ResultRow]) -> Answer {
    let rows = Rows::of(rows);
    let on_kvm = rows.on_kvm(MAP_PRIVATE).most(Size::PARAM).1;
    let bytes = if on_kvm > 0 { on_kvm } else { rows.mayfly().most(Size::PARAM).1 };
    let of = |variant| rows.on_kvm(variant).with(Size::PARAM, bytes);
    let [copy, mapped, faults, ahead] = [COPY, MAP_PRIVATE, USERFAULT, PREFETCH].map(of);
    let size = units::bytes(bytes);
    let asked = &REQUESTS[ASKED];

    let here = || {
        let (first, answer) = (mapped.time(FIRST_EXIT)?, mapped.time(asked.answer)?);
        Some(format!(
            "On this host's KVM, a fork of a guest of {size} whose snapshot is mapped privately takes {first} until its \
             guest has run, and {answer} until it has answered a request that writes {} pages.",
            asked.count
        ))
    };
    let copied = || {
        let (first, answer) = (copy.time(FIRST_EXIT)?, copy.time(asked.answer)?);
        let more = times(copy.p50(FIRST_EXIT), mapped.p50(FIRST_EXIT))?;
        Some(format!(
            "What waits: a fork whose snapshot is copied takes {first} until its guest has run, {more} as long, however \
             little the guest touches; and {answer} until the answer."
        ))
    };
    let served = || {
        let answer = faults.time(asked.answer)?;
        let more = times(faults.p50(asked.answer), mapped.p50(asked.answer))?;
        Some(format!(
            "Where a thread of the VMM serves the guest's faults (userfaultfd), the answer takes {answer}, {more} as \
             long as from a private mapping."
        ))
    };
    let prefetched = || {
        let (answer, request) = (ahead.time(asked.answer)?, ahead.time(asked.request)?);
        let plain = mapped.time(asked.request)?;
        Some(format!(
            "If the pages that an earlier fork wrote are written ahead, the answer takes {answer}. Of that, the request is \
             {request} ({plain} if nothing is written ahead). The rest comes before the request."
        ))
    };
    let resets = || {
        let of = |rows: &Rows<'_>| rows.time(REQUESTS[0].reset);
        let (mapped, copy) = (of(&mapped)?, of(&copy)?);
        Some(format!(
            "To take back what a request of {} pages has written: {mapped} for a private mapping (MADV_DONTNEED), \
             {copy} for a copy.",
            REQUESTS[0].count
        ))
    };
    let parent = || {
        let parent = mapped.time(PARENT)?;
        Some(format!(
            "A guest that is forked and goes on loses {parent}: it stands still while its memory is copied to the \
             snapshot, and writes 1,000 pages again."
        ))
    };
    let memory = || {
        let many = mapped.most(Bound::FORKS.name).0;
        let forks = many.counter(FORKS_AT_ONCE)?;
        let kib = |rows: &Rows<'_>, name| rows.counter(name).map(|kib| units::bytes(kib << 10));
        let (idle, after) = (kib(&mapped, OWN_IDLE)?, kib(&mapped, REQUESTS[0].own)?);
        let (time, copy) = (many.time(AT_ONCE)?, kib(&copy, OWN_IDLE)?);
        Some(format!(
            "A privately mapped fork has {idle} of its own before it runs, and {after} after {} pages; a copy has \
             {copy}. With up to {forks} of them at once, one more takes {time} until its answer.",
            REQUESTS[0].count
        ))
    };
    let advice = || {
        let [plain, before] = [&mapped, &ahead].map(|rows| rows.p50(asked.request));
        let gain = times(plain, before)?;
        let ahead = if plain > before {
            format!(
                "Where forks are made before their requests, record what the first ones write, and have that written \
                 ahead (MADV_POPULATE_WRITE): the request takes {gain} less."
            )
        } else {
            "Writing pages ahead gains nothing here.".to_owned()
        };
        Some(format!(
            "What to do: map the snapshot's file privately, and copy nothing. {ahead} Take back what a fork has written \
             by MADV_DONTNEED. Serve faults yourself only if the snapshot is in no file that can be mapped."
        ))
    };
    Answer::of(
        here().or_else(|| rows.kvm_not_measured()),
        [copied(), served(), prefetched(), resets(), parent(), memory(), on_machine(&rows, bytes)],
        advice(),
    )
    .by(Size::PARAM, bytes)
}

/// What forks of so many bytes cost on the software machine.
fn on_machine(rows: &Rows<'_>, bytes: u64) -> Option<String> {
    let (size, asked) = (units::bytes(bytes), &REQUESTS[ASKED]);
    let of = |variant| rows.machine(variant).with(Size::PARAM, bytes);
    let [ours, copy, linux] = [Variant::BASELINE, COPY, MAP_PRIVATE].map(of);
    let each = |rows: &Rows<'_>| {
        let (first, answer) = (rows.time(FIRST_EXIT)?, rows.time(asked.answer)?);
        Some(format!("{first}, {answer} and {}", rows.time(REQUESTS[0].reset)?))
    };
    let (parent, copied) = (ours.time(PARENT)?, copy.time(PARENT)?);
    Some(format!(
        "On the software machine, Mayfly's fork of a guest of {size} takes {}: until its guest has run, until it has \
         written {} pages, and to take back {}. A copy takes {}; an image of which the VM is told as Linux tells KVM, \
         {}. The guest that is forked and goes on loses {parent}, and {copied} where it is copied.",
        each(&ours)?,
        asked.count,
        REQUESTS[0].count,
        each(&copy)?,
        each(&linux)?,
    ))
}
