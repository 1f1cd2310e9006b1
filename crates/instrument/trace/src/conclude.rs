//! What can be told of a trace when it has been recorded: phases, waits with their causes, critical paths.

use mayfly_record::Host;

use crate::record::Trace;

impl Trace {
    /// The same with the host that it was made on, its phases, and its waits.
    #[must_use]
    pub fn concluded(mut self, host: Host) -> Self {
        self.host = Some(host);
        self.phases = self.find_phases();
        self.stalls = self.find_stalls();
        self.critical_paths = self.find_critical_paths();
        self.lives = self.find_lives();
        self
    }
}
