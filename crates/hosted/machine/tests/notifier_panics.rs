//! A notifier that panics ends the program: it may still use what is about to change, and a thread that resolves a page
//! which is getting another frame would wait for ever.
//!
//! Each case is a process of its own: the binary of this test again, told by a variable that the case is its own.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use mayfly_machine::Arena;
use mayfly_machine::address_space::{Backing, Change, HostSpace, Notifier, PageChange, Protection};
use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};

/// The call of a notifier that panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Start,
    ChangePte,
    AllowWrites,
    End,
}

struct Panics(Call);

impl Panics {
    fn hear(&self, call: Call) {
        assert!(self.0 != call, "the notifier's own mistake");
    }
}

impl Notifier for Panics {
    fn invalidate_start(&self, _: &Change) {
        self.hear(Call::Start);
    }

    fn change_pte(&self, _: Hva, _: &PageChange) {
        self.hear(Call::ChangePte);
    }

    fn allow_writes(&self, _: Hva, _: Pfn) {
        self.hear(Call::AllowWrites);
    }

    fn invalidate_end(&self, _: &Change) {
        self.hear(Call::End);
    }
}

const VARIABLE: &str = "MAYFLY_NOTIFIER_PANICS";

fn ends_the_program(name: &str, call: Call) {
    if env::var_os(VARIABLE).is_some() {
        break_a_shared_page(call);
        // The parent finds that this process has ended in another way.
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, "yes")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "SIGABRT; it said: {text}");
    assert!(text.contains("the notifier's own mistake"), "{text}");
}

/// A write to a page that shares its frame with a fork. Every notifier hears of the start, of the page's own frame, of the
/// right to write, and of the end.
fn break_a_shared_page(call: Call) {
    let space = HostSpace::new(Arc::new(Arena::new(8).unwrap()));
    let page = space.mmap(PAGE_SIZE, Backing::Pages, Protection::ReadWrite).unwrap();
    space.write_u64(page, 7).unwrap();
    space.fork(page..Hva::new(page.get() + PAGE_SIZE)).unwrap();
    space.register(Arc::new(Panics(call)));
    space.write_u64(page, 8).unwrap();
}

#[test]
fn at_the_start_of_a_change() {
    ends_the_program("at_the_start_of_a_change", Call::Start);
}

#[test]
fn where_a_page_gets_another_frame() {
    ends_the_program("where_a_page_gets_another_frame", Call::ChangePte);
}

#[test]
fn where_a_page_may_be_written() {
    ends_the_program("where_a_page_may_be_written", Call::AllowWrites);
}

#[test]
fn at_the_end_of_a_change() {
    ends_the_program("at_the_end_of_a_change", Call::End);
}
