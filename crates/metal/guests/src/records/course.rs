//! What the guest does.

use core::convert::Infallible;

use super::disk::{Disk, Failed, Kind, REQUESTS};
use super::machine::say;
use super::record::{self, SLOTS};

/// In one of so many lives, it does not flush.
const WAYS: u64 = 4;

pub(super) fn run(said: u64, life: u64) {
    let flushes = life % WAYS != WAYS - 1;
    let Ok(mut disk) = Disk::start(flushes) else {
        return say!("guest: FAILED: there is no disk that it can use");
    };
    let newest = match check(&mut disk, said) {
        Ok(Some(newest)) => newest,
        Ok(None) => return,
        Err(Failed) => return say!("guest: FAILED: the disk cannot be read"),
    };
    let Err(Failed) = write(&mut disk, said.max(newest), flushes);
    say!("guest: FAILED: the disk cannot be written");
}

/// Zeroes that a slot has.
#[derive(Clone, Copy, Default)]
struct Zeroes {
    first: bool,
    others: bool,
}

/// Looks whether what was flushed is there. Returns the newest record that is.
fn check(disk: &mut Disk, said: u64) -> Result<Option<u64>, Failed> {
    let (mut newest, mut later) = (0, 0);
    let mut zeroes = [Zeroes::default(); SLOTS as usize];
    for (slot, zeroes) in (0..).zip(&mut zeroes) {
        disk.ask(Kind::Read, slot);
        disk.wait()?;
        let flushed = record::last(slot, said);
        for (place, sector) in disk.data(0).iter().enumerate() {
            match record::number(place, sector) {
                Some(0) if place == 0 => zeroes.first = true,
                Some(0) => zeroes.others = true,
                Some(number) if number % SLOTS == slot && number >= flushed => {
                    newest = newest.max(number);
                    later += u64::from(number > flushed);
                }
                Some(number) => {
                    say!(
                        "guest: FAILED: sector {place} of slot {slot} is of record {number}, and record {flushed} was flushed"
                    );
                    return Ok(None);
                }
                None => {
                    say!(
                        "guest: FAILED: sector {place} of slot {slot} is of no record: it begins with {:#x} {:#x}",
                        sector[0],
                        sector[1]
                    );
                    return Ok(None);
                }
            }
        }
    }
    // Records are flushed before others begin, but for so many.
    let begun = newest.max(said) + SLOTS;
    for (slot, zeroes) in (0..).zip(zeroes) {
        let flushed = record::last(slot, said);
        let may_be = flushed == 0 || record::is_cleared_later(flushed, begun);
        let others_may_be = may_be || record::is_cleared(flushed);
        if zeroes.first && !may_be || zeroes.others && !others_may_be {
            say!("guest: FAILED: slot {slot} has zeroes, and record {flushed} was flushed");
            return Ok(None);
        }
    }
    say!(
        "guest: found all that was flushed, up to {said}, and {later} sectors that were not, up to {newest}"
    );
    Ok(Some(newest))
}

/// Writes records from the one behind `last` on, for good.
fn write(disk: &mut Disk, mut last: u64, flushes: bool) -> Result<Infallible, Failed> {
    let mut rest = SLOTS;
    loop {
        while rest > 0 {
            let now = rest.min(REQUESTS as u64);
            let numbers = last + 1..=last + now;
            for (request, number) in numbers.clone().enumerate() {
                record::write(number, disk.data(request));
            }
            for number in numbers.clone() {
                let is_cleared = record::is_cleared(number);
                disk.ask(if is_cleared { Kind::Zero } else { Kind::Write }, number % SLOTS);
            }
            disk.wait()?;
            for number in numbers.filter(|number| record::is_cleared(*number)) {
                record::write(number, disk.data(0));
                disk.ask(Kind::WriteFirst, number % SLOTS);
                disk.wait()?;
            }
            (last, rest) = (last + now, rest - now);
        }
        let chosen = record::chosen(last);
        // The sectors behind the last slot.
        if disk.discards && chosen >> 8 & 3 == 3 {
            disk.ask(Kind::Discard, SLOTS);
            disk.wait()?;
        }
        if flushes {
            disk.ask(Kind::Flush, 0);
            disk.wait()?;
        }
        say!("guest: flushed {last}");
        rest = 1 + chosen % REQUESTS as u64;
    }
}
