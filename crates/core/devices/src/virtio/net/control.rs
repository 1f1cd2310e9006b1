//! The control queue: virtio 1.2, 5.1.6.5.

use super::Net;
use crate::memory::GuestMemory;
use crate::virtio::chain::{Chain, Malformed};

const RX_MODE: u8 = 0;
/// Promiscuous, all multicast, all unicast, no multicast, no unicast, no broadcast.
const RX_MODES: u8 = 5;
const MAC: u8 = 1;
const MAC_TABLE: u8 = 0;
/// The bytes of a command, and of the lengths of the two tables that follow one for the addresses.
const MAC_TABLE_LEAST: u64 = 2 + 4 + 4;
const ANNOUNCE: u8 = 3;
const ANNOUNCE_ACK: u8 = 0;

const OK: u8 = 0;
const ERROR: u8 = 1;

impl Net {
    /// Does what the driver asks for; how many bytes were written.
    ///
    /// Which frames a card is given is its network's decision. So each mode and each table of addresses is taken, and none
    /// changes that: a device may pass on more than was asked for (5.1.6.5.1).
    pub(super) fn command(
        &mut self,
        chain: &Chain,
        memory: &impl GuestMemory,
    ) -> Result<u32, Malformed> {
        if chain.readable() < 2 || chain.writable() == 0 {
            return Err(Malformed);
        }
        let mut command = [0; 2];
        chain.read(0, &mut command, memory)?;
        let is_done = match command {
            [RX_MODE, mode] => mode <= RX_MODES && chain.readable() == 3,
            [MAC, MAC_TABLE] => chain.readable() >= MAC_TABLE_LEAST,
            [ANNOUNCE, ANNOUNCE_ACK] => {
                self.announces = false;
                true
            }
            _ => false,
        };
        chain.write(0, &[if is_done { OK } else { ERROR }], memory)?;
        Ok(1)
    }
}
