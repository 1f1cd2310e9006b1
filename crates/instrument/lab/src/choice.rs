//! Where the user wants an experiment to run.

use std::str::FromStr;

use mayfly_record::Backend;

/// Which backends the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The machine, and KVM where it can be opened; where it cannot, a skipped row says why.
    #[default]
    Auto,
    /// This backend alone. Asking for KVM where it cannot be opened is an error.
    Only(Backend),
}

impl BackendChoice {
    /// Whether `backend` is among those asked for.
    pub fn includes(self, backend: Backend) -> bool {
        match self {
            // A machine of its own is asked for by name: it takes minutes, and what is not everywhere.
            Self::Auto => backend != Backend::Metal,
            Self::Only(only) => only == backend,
        }
    }
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "machine" => Ok(Self::Only(Backend::Machine)),
            "kvm" => Ok(Self::Only(Backend::Kvm)),
            "metal" => Ok(Self::Only(Backend::Metal)),
            _ => Err("accepted are auto, machine, kvm, metal".to_owned()),
        }
    }
}
