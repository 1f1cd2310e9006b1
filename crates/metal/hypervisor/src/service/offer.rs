//! What a service is to be, as its parameters say.

use alloc::string::String;
use alloc::vec::Vec;

use mayfly_dispatch::{Config, MOST_SLOTS, Timers};

/// What a service is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The IP address of the frozen VM.
    pub ip: [u8; 4],
    /// The port at which it answers.
    pub port: u16,
    /// How many forks there are at a time.
    pub forks: u16,
    /// How many SYNs may wait for one more.
    pub waiting: u16,
    /// When flows end.
    pub timers: Timers,
}

/// Each decision of a service looks at all of its forks: so there are few.
const MOST_FORKS: u16 = 127;
const MOST_WAITING: u16 = 512;
/// How many connections are remembered that are over, for each fork.
const REMEMBERED: u16 = 4;
/// The longest of its times, in seconds: a day.
const MOST_SECONDS: u64 = 86_400;
const SECOND: u64 = 1_000_000_000;

impl Offer {
    /// What these parameters say; and those of them that are not a service's, but its forks'.
    ///
    /// # Errors
    ///
    /// Says what is wrong.
    pub fn parse(parameters: &[String]) -> Result<(Self, Vec<String>), &'static str> {
        let (mut ip, mut rest) = (None, Vec::new());
        let mut offer =
            Self { ip: [0; 4], port: 80, forks: 64, waiting: 64, timers: Timers::DEFAULT };
        let seconds = |value: &str| {
            let seconds = value.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
            let seconds = seconds.ok_or("a time is a number of seconds, 1 to 86400")?;
            Ok::<u64, &'static str>(seconds * SECOND)
        };
        for parameter in parameters {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "ip" => ip = Some(address(value).ok_or("an address is like 10.0.2.15")?),
                "port" => {
                    let port = value.parse().ok().filter(|port| *port != 0);
                    offer.port = port.ok_or("a port is a number, 1 to 65535")?;
                }
                "forks" => {
                    let forks = value.parse().ok().filter(|forks| (1..=MOST_FORKS).contains(forks));
                    offer.forks = forks.ok_or("a service has 1 to 127 forks at a time")?;
                }
                "waiting" => {
                    let waiting = value.parse().ok().filter(|waiting| *waiting <= MOST_WAITING);
                    offer.waiting = waiting.ok_or("0 to 512 SYNs may wait")?;
                }
                "half-open" => offer.timers.half_open = seconds(value)?,
                "abandoned" => offer.timers.abandoned = seconds(value)?,
                "longest" => offer.timers.longest = seconds(value)?,
                _ => rest.push(parameter.clone()),
            }
        }
        offer.ip = ip.ok_or("a service needs the IP address of the frozen VM: ip=10.0.2.15")?;
        Ok((offer, rest))
    }

    /// The dispatcher of a service of a VM whose card has that address.
    pub fn config(&self, mac: [u8; 6]) -> Config {
        let flows = self.forks + self.waiting;
        let remembered = (REMEMBERED * self.forks).min(MOST_SLOTS - flows);
        let Self { ip, port, timers, .. } = *self;
        Config { mac, ip, port, flows, remembered, timers }
    }
}

fn address(text: &str) -> Option<[u8; 4]> {
    Some(text.parse::<core::net::Ipv4Addr>().ok()?.octets())
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec;

    use super::*;

    fn parse(words: &str) -> Result<(Offer, Vec<String>), &'static str> {
        let words: Vec<_> = words.split_whitespace().map(ToString::to_string).collect();
        Offer::parse(&words)
    }

    #[test]
    fn parameters_are_those_of_the_service_and_those_of_its_forks() {
        let (offer, rest) =
            parse("ip=10.0.2.15 overcommit=yes port=8080 forks=3 waiting=0 longest=7").unwrap();
        assert_eq!((offer.ip, offer.port, offer.forks), ([10, 0, 2, 15], 8080, 3));
        assert_eq!((offer.waiting, offer.timers.longest), (0, 7 * SECOND));
        assert_eq!(rest, vec!["overcommit=yes".to_string()]);
        let config = offer.config([2; 6]);
        assert_eq!((config.flows, config.remembered), (3, 12));
    }

    #[test]
    fn there_is_a_dispatcher_of_all_that_can_be_offered() {
        for words in ["ip=1.2.3.4 forks=127 waiting=512", "ip=1.2.3.4 forks=1 waiting=0"] {
            let (offer, _) = parse(words).unwrap();
            assert!(mayfly_dispatch::Dispatcher::try_new(offer.config([2; 6])).is_ok(), "{words}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            "",
            "ip=10.0.2",
            "ip=10.0.2.15 port=0",
            "ip=10.0.2.15 port=65536",
            "ip=10.0.2.15 forks=0",
            "ip=10.0.2.15 forks=128",
            "ip=10.0.2.15 waiting=513",
            "ip=10.0.2.15 half-open=0",
            "ip=10.0.2.15 longest=86401",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
