//! Every call of a trace, a line each.

use std::fmt;

use mayfly_record::units::duration;

use crate::record::{Call, Trace};
use crate::words::{argument, result};

/// Lists the calls of a trace in the order in which they began.
pub struct Calls<'a>(pub &'a Trace);

impl fmt::Display for Calls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["at", "took", "thread"];
        writeln!(f, "{:>9}  {:>9}  {:>7}  call", head[0], head[1], head[2])?;
        for call in &self.0.calls {
            let took = call.took.map_or_else(|| "not seen".to_owned(), duration);
            writeln!(f, "{:>9}  {took:>9}  {:>7}  {}", duration(call.at), call.tid, told(call))?;
        }
        Ok(())
    }
}

/// A call with what it was made on, its arguments and its result.
pub(crate) fn told(call: &Call) -> String {
    let mut words = vec![call.name.clone()];
    words.extend(call.on.as_ref().map(|on| format!("on {on}")));
    let arguments = call.arguments.iter();
    words.extend(arguments.map(|(name, value)| format!("{name} {}", argument(name, *value))));
    words.extend(call.result.map(|value| format!("gives {}", result(value))));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Object;

    #[test]
    fn each_call_is_a_line_with_what_matters_of_it() {
        let call = Call {
            tid: 12,
            at: 1_500_000,
            took: Some(2_000),
            name: "KVM_SET_USER_MEMORY_REGION".into(),
            on: Some(Object::Vm { vm: 0 }),
            arguments: [("size".to_owned(), 2 << 20), ("guest".to_owned(), 0x1000)].into(),
            result: Some(-22),
            ..Call::default()
        };
        let open = Call { name: "open".into(), ..Call::default() };
        let text = Calls(&Trace { calls: vec![call, open], ..Trace::default() }).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let said = "  1.50 ms    2.00 us       12  KVM_SET_USER_MEMORY_REGION, on VM 0, guest 0x1000, size 2 MiB, gives Invalid argument";
        assert!(lines[1].starts_with(said), "{text}");
        assert!(lines[2].ends_with("not seen        0  open"), "{text}");
    }
}
