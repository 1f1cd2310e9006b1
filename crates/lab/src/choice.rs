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
            Self::Auto => true,
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
            _ => Err("accepted are auto, machine, kvm".to_owned()),
        }
    }
}
