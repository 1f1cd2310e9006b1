//! A VM's network card, as its parameters describe it: `net=`, `mac=`, `isolated=` and `rate=`.

use alloc::string::{String, ToString};

use crate::plan::{bytes, is_name};

/// What a card is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// The name of its network; none for no card.
    pub network: Option<String>,
    /// Its address; none for one that is made of the VM's name.
    mac: Option<[u8; 6]>,
    /// It reaches no other isolated card.
    pub isolated: bool,
    /// How many bytes it may send in a second; none for as many as it likes.
    pub rate: Option<u64>,
}

impl Card {
    /// Sets one of its parameters. Returns whether it is one.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match name {
            "net" if value == "no" => self.network = None,
            "net" if is_name(value) => self.network = Some(value.to_string()),
            "net" => {
                return Err(
                    "a network's name has 1 to 32 letters, digits, '-' and '_'; 'no' is none",
                );
            }
            "mac" => {
                let mac = address(value).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
                self.mac = Some(mac.ok_or(
                    "a card's address is like 52:54:00:12:34:56, and its first byte is even",
                )?);
            }
            "isolated" if value == "yes" => self.isolated = true,
            "isolated" if value == "no" => self.isolated = false,
            "isolated" => return Err("isolated is yes or no"),
            "rate" => match bytes(value) {
                Some(0) => self.rate = None,
                Some(rate) => self.rate = Some(rate),
                None => return Err("a rate is a number of bytes a second: 10M; 0 is no limit"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The address of the card of VM `name`. One that is made of the name is in the range that QEMU and KVM use for
    /// guests.
    pub fn mac(&self, name: &str) -> [u8; 6] {
        self.mac.unwrap_or_else(|| {
            let sum = crc32fast::hash(name.as_bytes()).to_be_bytes();
            [0x52, 0x54, 0x00, sum[1], sum[2], sum[3]]
        })
    }

    /// Keeps the address of the card of VM `name`, whoever has it from now on.
    pub fn keep(&mut self, name: &str) {
        self.mac = Some(self.mac(name));
    }
}

fn address(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.split(':').map(|byte| {
        let is_byte = byte.len() == 2 && byte.chars().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(byte, 16).ok().filter(|_| is_byte)
    });
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    bytes.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(parameters: &[(&str, &str)]) -> Result<Card, &'static str> {
        let mut card = Card::default();
        for (name, value) in parameters {
            assert!(card.set(name, value)?, "{name} is a parameter of a card");
        }
        Ok(card)
    }

    #[test]
    fn a_card_is_what_its_parameters_say() {
        let card = card(&[
            ("net", "lan"),
            ("mac", "52:54:00:0a:0B:0c"),
            ("isolated", "yes"),
            ("rate", "10M"),
        ]);
        let card = card.unwrap();
        assert_eq!(card.network.as_deref(), Some("lan"));
        assert_eq!(card.mac("web"), [0x52, 0x54, 0, 10, 11, 12]);
        assert!(card.isolated);
        assert_eq!(card.rate, Some(10 << 20));
        assert_eq!(Card::default().set("disk", "1M"), Ok(false));
    }

    #[test]
    fn two_vms_have_two_addresses_of_one_card_each() {
        let card = Card::default();
        let [one, other] = ["web", "db"].map(|name| card.mac(name));
        assert!(one != other && one[0] & 1 == 0);
        assert_eq!(one, card.mac("web"));
    }

    #[test]
    fn what_no_card_can_have_is_refused() {
        for (name, value) in [
            ("net", ""),
            ("net", "a b"),
            ("mac", ""),
            ("mac", "52:54:00:12:34"),
            ("mac", "52:54:00:12:34:56:78"),
            ("mac", "53:54:00:12:34:56"),
            ("mac", "00:00:00:00:00:00"),
            ("mac", "52:54:00:12:34:5g"),
            ("mac", "52:54:00:12:34:+5"),
            ("isolated", "perhaps"),
            ("rate", "fast"),
        ] {
            assert!(card(&[(name, value)]).is_err(), "{name}={value}");
        }
    }
}
