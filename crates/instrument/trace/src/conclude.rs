//! What can be told of a trace when it has been recorded: phases, waits with their causes, critical paths.

use mayfly_record::Host;

use crate::record::Trace;
use crate::request::Beginning;

impl Trace {
    /// The same with the host that it was made on, its phases, and its waits.
    #[must_use]
    pub fn concluded(self, host: Host) -> Self {
        self.concluded_from(host, &Beginning::default())
    }

    /// The same; `beginning` says from when its start is counted.
    #[must_use]
    pub fn concluded_from(mut self, host: Host, beginning: &Beginning) -> Self {
        self.host = Some(host);
        self.from = self.find_from(beginning);
        self.phases = self.find_phases();
        self.critical_paths = self.find_critical_paths();
        self.lives = self.find_lives();
        // On the paths there are waits that are no call of the record.
        self.stalls = self.find_stalls();
        self
    }
}
