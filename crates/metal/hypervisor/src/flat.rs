//! A flattened device tree, written as its nodes come: the caller may do other work between two of them.

use alloc::vec::Vec;

const MAGIC: u32 = 0xd00d_feed;
const VERSION: u32 = 17;
/// What readers of this version have to know at least.
const COMPATIBLE: u32 = 16;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;
/// Bytes of the header, and of the list of reserved memory, in which there is its end alone.
const HEADER: usize = 40;
const RESERVED: usize = 16;

/// A tree that is being written.
#[derive(Debug, Default)]
pub struct Flat {
    nodes: Vec<u8>,
    strings: Vec<u8>,
    /// Names of properties, and where they are among the strings.
    names: Vec<(&'static str, u32)>,
}

impl Flat {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn word(&mut self, word: u32) {
        self.nodes.extend_from_slice(&word.to_be_bytes());
    }

    fn align(&mut self) {
        self.nodes.resize(self.nodes.len().next_multiple_of(4), 0);
    }

    /// A node begins; the first is the root, whose name is empty.
    pub fn begin(&mut self, name: &str) {
        self.word(BEGIN_NODE);
        self.nodes.extend_from_slice(name.as_bytes());
        self.nodes.push(0);
        self.align();
    }

    /// The node that began last, and has not ended, ends.
    pub fn end(&mut self) {
        self.word(END_NODE);
    }

    /// A property of the node that began last; before the nodes in it.
    pub fn property(&mut self, name: &'static str, value: &[u8]) {
        let name = self.name(name);
        self.word(PROPERTY);
        self.word(value.len() as u32);
        self.word(name);
        self.nodes.extend_from_slice(value);
        self.align();
    }

    /// A property of numbers.
    pub fn cells(&mut self, name: &'static str, cells: &[u32]) {
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.property(name, &bytes);
    }

    /// A property of addresses or sizes, of two cells each.
    pub fn addresses(&mut self, name: &'static str, numbers: &[u64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        self.property(name, &bytes);
    }

    /// A property of texts, in which there is no zero.
    pub fn texts(&mut self, name: &'static str, texts: &[&str]) {
        let mut bytes = Vec::new();
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        self.property(name, &bytes);
    }

    fn name(&mut self, name: &'static str) -> u32 {
        if let Some((_, at)) = self.names.iter().find(|(known, _)| *known == name) {
            return *at;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        self.names.push((name, at));
        at
    }

    /// The tree, all of whose nodes have ended.
    pub fn finish(mut self) -> Vec<u8> {
        self.word(END);
        let nodes = HEADER + RESERVED;
        let strings = nodes + self.nodes.len();
        let total = strings + self.strings.len();
        let header = [
            MAGIC,
            total as u32,
            nodes as u32,
            strings as u32,
            HEADER as u32,
            VERSION,
            COMPATIBLE,
            0,
            self.strings.len() as u32,
            self.nodes.len() as u32,
        ];
        let mut bytes = Vec::with_capacity(total);
        bytes.extend(header.iter().flat_map(|word| word.to_be_bytes()));
        bytes.resize(nodes, 0);
        bytes.extend_from_slice(&self.nodes);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use dtoolkit::fdt::Fdt;
    use dtoolkit::{Node, Property};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_tree_is_one() {
        let mut flat = Flat::new();
        flat.begin("");
        flat.end();
        assert_eq!(Fdt::new(&flat.finish()).unwrap().root().properties().count(), 0);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(nodes in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4), 0..6)) {
            const NAMES: [&str; 4] = ["reg", "compatible", "a", "clock-names"];
            let mut flat = Flat::new();
            flat.begin("");
            for (number, properties) in nodes.iter().enumerate() {
                flat.begin(&alloc::format!("node@{number:x}"));
                for (name, value) in NAMES.iter().zip(properties) {
                    flat.property(name, value);
                }
                flat.end();
            }
            flat.end();
            let bytes = flat.finish();
            let tree = Fdt::new(&bytes).unwrap();
            prop_assert_eq!(tree.root().children().count(), nodes.len());
            for (number, properties) in nodes.iter().enumerate() {
                let node = tree.find_node(&alloc::format!("/node@{number:x}")).unwrap();
                let read: Vec<_> = node.properties().map(|property| (String::from(property.name()), property.value().to_vec())).collect();
                let written: Vec<_> = NAMES.iter().zip(properties).map(|(name, value)| (String::from(*name), value.clone())).collect();
                prop_assert_eq!(read, written);
            }
        }
    }
}
