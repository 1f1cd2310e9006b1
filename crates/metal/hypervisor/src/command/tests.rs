use std::vec;

use proptest::prelude::*;

use super::*;

#[test]
fn boot_arguments_are_commands() {
    let commands: Vec<_> = Command::script("wait vm0; vm stat vm0 ;poweroff").collect();
    let name = || "vm0".to_string();
    assert_eq!(
        commands,
        [Ok(Command::Wait(Some(name()))), Ok(Command::Stat(Some(name()))), Ok(Command::PowerOff)]
    );
    assert_eq!(Command::script("").next(), Some(Ok(Command::Nothing)));
}

#[test]
fn a_command_that_help_lists_says_what_it_needs() {
    let lines = HELP.lines().filter(|line| !line.starts_with([' ', 'C']));
    let commands = lines.map(|line| {
        let words = line.split_whitespace().take_while(|word| !word.contains(char::is_uppercase));
        words.take_while(|word| !word.starts_with('[')).take(2).collect::<Vec<_>>()
    });
    let mut count = 0;
    for words in commands {
        let first = if words[0] == "vm" { words.join(" ") } else { words[0].to_string() };
        let none = Command::read("nonsense");
        assert!(none.is_err() && Command::read(&first) != none, "{first}");
        count += 1;
    }
    assert!(count > 30);
}

#[test]
fn a_vm_is_created_like_another() {
    let (name, like) = ("b".to_string(), "a".to_string());
    let parameters = vec!["vcpus=2".to_string()];
    let created = |arguments| {
        let (name, like, parameters) = (name.clone(), like.clone(), parameters.clone());
        Ok(Command::Create { name, like, parameters, arguments })
    };
    assert_eq!(Command::read("vm create b a vcpus=2"), created(None));
    let arguments = Some("console=ttyAMA0  quiet".to_string());
    let typed = "vm create b a vcpus=2 -- console=ttyAMA0  quiet ";
    assert_eq!(Command::read(typed), created(arguments));
    assert_eq!(Command::read("vm create b a vcpus=2 -- "), created(Some(String::new())));
    assert!(Command::read("vm create b").is_err());
    assert!(Command::read("vm create b -- quiet").is_err());
}

#[test]
fn a_service_has_a_name_a_frozen_vm_and_parameters() {
    let serve = Command::read("vm serve web linux ip=10.0.2.15 overcommit=yes");
    let parameters = ["ip=10.0.2.15", "overcommit=yes"].map(String::from).to_vec();
    let (name, from) = ("web".into(), "linux".into());
    assert_eq!(serve, Ok(Command::Forks(Forks::Serve { name, from, parameters })));
    let served = |count: &str| Command::read(&["served web", count].join(" "));
    assert_eq!(served("300"), Ok(Command::Served { name: "web".into(), count: 300 }));
    assert!(served("").is_err() && served("all").is_err());
    assert!(Command::read("vm serve web").is_err());
    assert!(Command::read("vm serve").is_err());
}

#[test]
fn a_guest_is_asked_for_a_size_of_memory() {
    let asked = |bytes| Ok(Command::Balloon { name: "a".to_string(), bytes });
    assert_eq!(Command::read("vm balloon a 256M"), asked(256 << 20));
    assert_eq!(Command::read("vm balloon a 0"), asked(0));
    for line in ["vm balloon", "vm balloon a", "vm balloon a all", "vm balloon a -1"] {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn a_vm_is_forked_from_a_frozen_one() {
    let forked = |count, parameters: &[&str]| {
        let parameters = parameters.iter().map(ToString::to_string).collect();
        let (name, from) = ("b".to_string(), "a".to_string());
        Ok(Command::Forks(Forks::Fork { name, from, count, parameters }))
    };
    assert_eq!(Command::read("vm freeze a"), Ok(Command::Forks(Forks::Freeze("a".to_string()))));
    assert_eq!(Command::read("vm reset a"), Ok(Command::Forks(Forks::Reset("a".to_string()))));
    assert_eq!(Command::read("vm fork b a"), forked(None, &[]));
    assert_eq!(Command::read("vm fork b a 1000"), forked(Some(1000), &[]));
    assert_eq!(Command::read("vm fork b a weight=2"), forked(None, &["weight=2"]));
    let both = forked(Some(2), &["overcommit=yes", "cap=5"]);
    assert_eq!(Command::read("vm fork b a 2 overcommit=yes cap=5"), both);
    for line in
        ["vm freeze", "vm fork", "vm fork b", "vm fork b a 0", "vm fork b a -1", "vm fork b a 2049"]
    {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn what_is_awaited_is_taken_as_it_stands() {
    let expected = |name: &str, text: &str| {
        Ok(Command::Await { name: name.to_string(), text: text.to_string() })
    };
    assert_eq!(Command::read("await a in user  space"), expected("a", "in user  space"));
    assert_eq!(Command::read(" await await await "), expected("await", "await"));
    assert!(Command::read("await a").is_err());
    let typed = |text: &str| Ok(Command::Type { name: "a".to_string(), text: text.to_string() });
    assert_eq!(Command::read("type a echo  1 "), typed("echo  1"));
    assert_eq!(Command::read("type a"), typed(""));
    assert!(Command::read("type").is_err());
    assert!(Command::read("await").is_err());
}

#[test]
fn lives_are_counted_and_bounded() {
    let expected = |count, most| Ok(Command::Lives { count, like: "a".to_string(), most });
    assert_eq!(Command::read("lives 1000 a"), expected(1000, LONGEST_RUN));
    assert_eq!(Command::read("lives 50 a 400"), expected(50, 400));
    for line in ["lives", "lives a", "lives 5", "lives -1 a", "lives 5 a b", "lives 5000000000 a"] {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn forks_are_asked_and_turned_over_in_numbers() {
    let ask = |count, seconds| Ok(Command::Ask { name: "a".to_string(), count, seconds });
    assert_eq!(Command::read("ask a 3 60"), ask(3, 60));
    for line in ["ask", "ask a", "ask a 3", "ask a 0 60", "ask a 1001 60", "ask a 3 0", "ask a 3 x"]
    {
        assert!(Command::read(line).is_err(), "{line}");
    }
    let turnover = |count, after| Ok(Command::Turnover { count, from: "a".to_string(), after });
    assert_eq!(Command::read("turnover 100000 a"), turnover(100_000, None));
    assert_eq!(Command::read("turnover 3 a 20"), turnover(3, Some(20)));
    for line in ["turnover", "turnover 5", "turnover a 5", "turnover -1 a", "turnover 5 a b"] {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn what_is_measured_is_measured_in_rounds() {
    let measure = |course, rounds| Ok(Command::Measure(course, rounds));
    assert_eq!(Command::read("measure"), measure(Course::Lives, times::ROUNDS));
    assert_eq!(Command::read("measure 7"), measure(Course::Lives, 7));
    assert_eq!(Command::read("measure lives 7"), measure(Course::Lives, 7));
    assert_eq!(Command::read("measure dirty-log"), measure(Course::DirtyLog, times::LOGGED_ROUNDS));
    assert_eq!(Command::read("measure dirty-log 7"), measure(Course::DirtyLog, 7));
    assert_eq!(Command::read("measure fork"), measure(Course::Fork, times::ROUNDS));
    let wrong = ["measure 0", "measure 101", "measure x", "measure -1", "measure dirty-log 0"];
    for line in wrong.into_iter().chain(["measure dirty-log x", "measure dirty-log 101"]) {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn shares_are_measured_for_seconds() {
    assert_eq!(Command::read("shares"), Ok(Command::Shares(SECONDS)));
    assert_eq!(Command::read("shares 7"), Ok(Command::Shares(7)));
    assert_eq!(Command::read("merge"), Ok(Command::Merge(None)));
    assert_eq!(Command::read("merge 0"), Ok(Command::Merge(Some(0))));
    assert_eq!(Command::read("merge 100"), Ok(Command::Merge(Some(100))));
    for wrong in ["merge 101", "merge -1", "merge 5%", "merge all", "merge 4294967296"] {
        assert!(Command::read(wrong).is_err(), "{wrong}");
    }
    assert_eq!(Command::read("uplink"), Ok(Command::Uplink(None)));
    assert_eq!(Command::read("uplink 2M"), Ok(Command::Uplink(Some(2 << 20))));
    assert_eq!(Command::read("uplink 0"), Ok(Command::Uplink(Some(0))));
    assert!(Command::read("uplink fast").is_err());
    for line in ["shares 0", "shares 3601", "shares x", "shares -1"] {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn phases_are_counted_by_the_names_that_they_are_given() {
    assert_eq!(Command::read("count"), Ok(Command::Count(None)));
    assert_eq!(Command::read("count boot"), Ok(Command::Count(Some("boot".to_string()))));
}

#[test]
fn a_trace_has_room_that_is_bounded() {
    assert_eq!(Command::read("trace on"), Ok(Command::TraceOn(TRACE)));
    assert_eq!(Command::read("trace on 1024"), Ok(Command::TraceOn(LARGEST_TRACE)));
    assert_eq!(Command::read("trace print"), Ok(Command::TracePrint));
    for line in ["trace", "trace off", "trace on 0", "trace on 1025", "trace on x"] {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn an_error_is_of_a_vm() {
    assert_eq!(Command::read("serror a"), Ok(Command::SystemError("a".to_string())));
    assert!(Command::read("serror").is_err());
}

#[test]
fn a_stack_is_overflowed_of_a_vm_or_of_an_idle_processor() {
    assert_eq!(Command::read("overflow"), Ok(Command::Overflow(None)));
    assert_eq!(Command::read("overflow a"), Ok(Command::Overflow(Some("a".to_string()))));
}

#[test]
fn stacks_are_measured_of_all_threads_alike() {
    assert_eq!(Command::read("stacks"), Ok(Command::Stacks));
    assert!(Command::read("stacks linux").is_err());
}

#[test]
fn what_is_no_command_is_refused() {
    for line in ["vm frobnicate", "vm start", "sleep x", "sleep", "reboot"] {
        assert!(Command::read(line).is_err(), "{line}");
    }
}

#[test]
fn every_command_is_helped_with() {
    let is_command = |line: &&str| !line.starts_with(char::is_uppercase) && !line.starts_with(' ');
    for line in HELP.lines().filter(is_command) {
        let is_number = |word: &str| {
            word.contains("MILLISECONDS")
                || matches!(
                    word,
                    "COUNT"
                        | "[COUNT]"
                        | "[ROUNDS]"
                        | "[MIB]"
                        | "SECONDS"
                        | "[SECONDS]"
                        | "[RATE]"
                        | "[HUNDREDTHS]"
                        | "SIZE"
                )
        };
        let words: Vec<&str> = line.split("  ").next().unwrap().split(' ').collect();
        // Words in small letters that may be left out are written as they are: of several, the last.
        let bare = |word: &'static str| {
            let word = word.trim_matches(['[', ']']);
            word.rsplit('|').next().unwrap_or(word)
        };
        let plain: Vec<&str> = words
            .iter()
            .map(|&word| match word {
                _ if is_number(word) => "1",
                _ if bare(word).starts_with(char::is_lowercase) => bare(word),
                _ => word,
            })
            .collect();
        assert!(Command::read(&plain.join(" ")).is_ok(), "{line}");
    }
}

proptest! {
    #[test]
    fn any_line_is_read_or_refused(line in ".{0,80}") {
        let _ = Command::read(&line);
    }
}
