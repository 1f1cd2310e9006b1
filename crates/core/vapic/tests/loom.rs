//! The APICs under loom: who sends, against a vCPU that looks, takes, ends, or falls asleep.

#![cfg(mayfly_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use mayfly_vapic::{Config, Event, LocalApic, Next, Time, Vapic};

const NOW: Time = Time { clock: 0, tsc: 0 };
const LEVEL: u64 = 1 << 15;

/// What a kick does: it wakes who sleeps, and is counted.
#[derive(Default)]
struct World {
    sleeps: [AtomicBool; 2],
    woken: [AtomicBool; 2],
    kicks: [AtomicUsize; 2],
}

type Apics = Vapic<Box<dyn Fn(usize) + Send + Sync>>;

/// APICs of two vCPUs, which have started, enabled them, and have seen that.
fn apics(world: &Arc<World>) -> (Arc<Apics>, LocalApic, LocalApic) {
    let world = world.clone();
    let kick: Box<dyn Fn(usize) + Send + Sync> = Box::new(move |vcpu| {
        world.kicks[vcpu].fetch_add(1, Ordering::Relaxed);
        if world.sleeps[vcpu].load(Ordering::Relaxed) {
            world.woken[vcpu].store(true, Ordering::Relaxed);
        }
    });
    let config = Config { vcpus: 2, x2apic: true, tsc_deadline: false, physical_bits: 40 };
    let vapic = Vapic::try_new(config, kick).unwrap();
    let (mut first, mut second) = (vapic.local_apic(0).unwrap(), vapic.local_apic(1).unwrap());
    for vcpu in [1, 0] {
        let apic = if vcpu == 0 { &mut first } else { &mut second };
        if vcpu == 1 {
            // It starts itself: nobody else runs.
            vapic.write(apic, 0x310, 4, 1 << 24, NOW);
            vapic.write(apic, 0x300, 4, 6 << 8, NOW);
            assert_eq!(vapic.look(apic, NOW).event, Some(Event::Startup(0)));
        }
        vapic.write(apic, 0xf0, 4, 0x1ff, NOW);
        vapic.look(apic, NOW);
    }
    (Arc::new(vapic), first, second)
}

/// An interrupt from one vCPU to another.
fn send(vapic: &Apics, from: &mut LocalApic, to: u64, icr: u64) {
    vapic.write(from, 0x310, 4, to << 24, NOW);
    vapic.write(from, 0x300, 4, icr, NOW);
}

fn set_pin(vapic: &Apics, to: u64, low: u64) {
    for (register, value) in [(0x11, to << 24), (0x10, low)] {
        vapic.write_ioapic(0, 4, register);
        vapic.write_ioapic(0x10, 4, value);
    }
}

fn end(vapic: &Apics, apic: &mut LocalApic) {
    vapic.write(apic, 0xb0, 4, 0, NOW);
}

#[test]
fn loom_a_vcpu_that_falls_asleep_sees_what_is_sent_or_is_woken() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, mut second) = apics(&world);
        set_pin(&vapic, 0, 0x41);
        let sender = {
            let vapic = vapic.clone();
            thread::spawn(move || send(&vapic, &mut second, 0, 0x31))
        };
        let device = {
            let vapic = vapic.clone();
            thread::spawn(move || vapic.set_line(0, true).unwrap())
        };
        world.sleeps[0].store(true, Ordering::Relaxed);
        let sees = vapic.look(&mut first, NOW).next != Next::Nothing;
        sender.join().unwrap();
        device.join().unwrap();
        assert!(sees || world.woken[0].load(Ordering::Relaxed), "it sleeps");
        assert_eq!(vapic.accept(&mut first), Some(0x41));
    });
}

#[test]
fn loom_a_vcpu_that_enters_has_what_was_sent_or_is_told_to_come_out() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, mut second) = apics(&world);
        world.kicks[0].store(0, Ordering::Relaxed);
        let sender = {
            let vapic = vapic.clone();
            thread::spawn(move || send(&vapic, &mut second, 0, 0x31))
        };
        let look = vapic.look(&mut first, NOW);
        sender.join().unwrap();
        let told = vapic.is_stale(0) && world.kicks[0].load(Ordering::Relaxed) == 1;
        assert!(look.next == Next::Deliver(0x31) || told, "it is not told");
        assert_eq!(vapic.look(&mut first, NOW).next, Next::Deliver(0x31));
    });
}

/// Whoever waits for the guest's handler has written before it sent: the handler sees that, also if the interrupt was there
/// already.
#[test]
fn loom_an_interrupt_that_meets_its_acceptance_is_seen_by_it_or_comes_again() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, mut second) = apics(&world);
        let written = Arc::new(AtomicBool::new(false));
        send(&vapic, &mut second, 0, 0x31);
        let sender = {
            let (vapic, written) = (vapic.clone(), written.clone());
            thread::spawn(move || {
                written.store(true, Ordering::Relaxed);
                send(&vapic, &mut second, 0, 0x31);
            })
        };
        assert_eq!(vapic.accept(&mut first), Some(0x31));
        let sees = written.load(Ordering::Relaxed);
        end(&vapic, &mut first);
        sender.join().unwrap();
        assert!(sees || vapic.accept(&mut first) == Some(0x31), "what was written is missed");
    });
}

#[test]
fn loom_a_level_that_was_taken_is_ended_where_it_came_from() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, _) = apics(&world);
        set_pin(&vapic, 0, LEVEL | 0x31);
        let device = {
            let vapic = vapic.clone();
            thread::spawn(move || vapic.set_line(0, true).unwrap())
        };
        if vapic.accept(&mut first).is_some() {
            end(&vapic, &mut first);
            // The line is high: it has come again, for its end was told.
            assert_eq!(vapic.accept(&mut first), Some(0x31), "its end was not told");
        }
        device.join().unwrap();
    });
}

#[test]
fn loom_a_line_that_changes_while_its_interrupt_ends_is_as_it_is_last() {
    for last in [false, true] {
        loom::model(move || {
            let world = Arc::new(World::default());
            let (vapic, mut first, _) = apics(&world);
            set_pin(&vapic, 0, LEVEL | 0x31);
            vapic.set_line(0, true).unwrap();
            assert_eq!(vapic.accept(&mut first), Some(0x31));
            let device = {
                let vapic = vapic.clone();
                thread::spawn(move || {
                    vapic.set_line(0, false).unwrap();
                    if last {
                        vapic.set_line(0, true).unwrap();
                    }
                })
            };
            end(&vapic, &mut first);
            device.join().unwrap();
            let again = vapic.accept(&mut first);
            if last {
                assert_eq!(again, Some(0x31), "it is high, and is not sent");
            }
            if again.is_some() {
                vapic.set_line(0, false).unwrap();
                end(&vapic, &mut first);
            }
            assert_eq!(vapic.accept(&mut first), None, "it is low, and is sent");
        });
    }
}

/// The entry names nobody; while the guest has it name vCPU 1, the line rises.
#[test]
fn loom_a_level_that_nobody_takes_goes_to_whom_its_entry_names_meanwhile() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, _, mut second) = apics(&world);
        set_pin(&vapic, 7, LEVEL | 0x31);
        let device = {
            let vapic = vapic.clone();
            thread::spawn(move || vapic.set_line(0, true).unwrap())
        };
        vapic.write_ioapic(0, 4, 0x11);
        vapic.write_ioapic(0x10, 4, 1 << 24);
        device.join().unwrap();
        assert_eq!(vapic.accept(&mut second), Some(0x31), "it is sent to nobody");
        vapic.set_line(0, false).unwrap();
        end(&vapic, &mut second);
        assert_eq!(vapic.accept(&mut second), None);
    });
}

/// The APIC that nobody was to be found at is enabled while the line rises.
#[test]
fn loom_a_level_that_meets_its_apics_enabling_is_taken() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, _) = apics(&world);
        vapic.write(&mut first, 0xf0, 4, 0xff, NOW);
        set_pin(&vapic, 0, LEVEL | 0x31);
        let device = {
            let vapic = vapic.clone();
            thread::spawn(move || vapic.set_line(0, true).unwrap())
        };
        vapic.write(&mut first, 0xf0, 4, 0x1ff, NOW);
        device.join().unwrap();
        assert_eq!(vapic.accept(&mut first), Some(0x31), "it is left with nobody");
        vapic.set_line(0, false).unwrap();
        end(&vapic, &mut first);
        assert_eq!(vapic.accept(&mut first), None);
    });
}

#[test]
fn loom_a_level_that_meets_an_init_comes_again_after_it() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, mut second) = apics(&world);
        set_pin(&vapic, 0, LEVEL | 0x31);
        send(&vapic, &mut second, 0, 0x4500);
        let device = {
            let vapic = vapic.clone();
            thread::spawn(move || vapic.set_line(0, true).unwrap())
        };
        assert_eq!(vapic.look(&mut first, NOW).event, Some(Event::Init));
        device.join().unwrap();
        vapic.write(&mut first, 0xf0, 4, 0x1ff, NOW);
        for _ in 0..2 {
            assert_eq!(vapic.accept(&mut first), Some(0x31), "it is in service nowhere");
            end(&vapic, &mut first);
        }
        vapic.set_line(0, false).unwrap();
        assert_eq!(vapic.accept(&mut first), Some(0x31));
        end(&vapic, &mut first);
        assert_eq!(vapic.accept(&mut first), None);
    });
}

#[test]
fn loom_an_interrupt_that_meets_an_init_is_not_there_after_the_start() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, mut second) = apics(&world);
        send(&vapic, &mut first, 1, 0x4500);
        let sender = {
            let vapic = vapic.clone();
            thread::spawn(move || {
                send(&vapic, &mut first, 1, 0x31);
                first
            })
        };
        assert_eq!(vapic.look(&mut second, NOW).event, Some(Event::Init));
        let mut first = sender.join().unwrap();
        send(&vapic, &mut first, 1, 0x4600 | 0x12);
        assert_eq!(vapic.look(&mut second, NOW).event, Some(Event::Startup(0x12)));
        vapic.write(&mut second, 0xf0, 4, 0x1ff, NOW);
        assert_eq!(vapic.next(&second), Next::Nothing, "it is of the former life");
    });
}

#[test]
fn loom_a_vcpu_is_started_once_however_its_start_meets_what_it_does() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let (vapic, mut first, mut second) = apics(&world);
        let sender = {
            let vapic = vapic.clone();
            thread::spawn(move || {
                send(&vapic, &mut first, 1, 0x4500);
                send(&vapic, &mut first, 1, 0x4600 | 0x12);
                send(&vapic, &mut first, 1, 0x4600 | 0x34);
            })
        };
        let mut events =
            vec![vapic.look(&mut second, NOW).event, vapic.look(&mut second, NOW).event];
        sender.join().unwrap();
        for _ in 0..3 {
            events.push(vapic.look(&mut second, NOW).event);
        }
        let came: Vec<_> = events.into_iter().flatten().collect();
        assert_eq!(came, [Event::Init, Event::Startup(0x12)]);
        assert!(!second.waits_for_startup());
    });
}
