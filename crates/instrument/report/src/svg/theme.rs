//! The two palettes of a picture.

use std::fmt;
use std::str::FromStr;

/// Which background a picture is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// A light one.
    #[default]
    Light,
    /// A dark one.
    Dark,
}

/// Colours by what they are for.
struct Palette {
    paper: &'static str,
    ink: &'static str,
    faint: &'static str,
    rule: &'static str,
    kvm: &'static str,
    before: &'static str,
    mayfly: &'static str,
}

impl Theme {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Light, Self::Dark];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Text has a contrast of 4.5 to 1 to the paper at least, a bar one of 3 to 1 (WCAG 2.1, 1.4.3 and 1.4.11).
    const fn palette(self) -> Palette {
        match self {
            Self::Light => Palette {
                paper: "#ffffff",
                ink: "#1c1e21",
                faint: "#5c636b",
                rule: "#dfe3e8",
                kvm: "#b35c00",
                before: "#5b7aa8",
                mayfly: "#0b7a3e",
            },
            Self::Dark => Palette {
                paper: "#0d1117",
                ink: "#e6e8ea",
                faint: "#a4abb3",
                rule: "#2b323b",
                kvm: "#f0a45d",
                before: "#7f9fd0",
                mayfly: "#4cc384",
            },
        }
    }

    /// The style sheet of a picture. No variables and no nesting: not everything that draws an SVG knows them.
    pub(super) fn style(self) -> String {
        let Palette { paper, ink, faint, rule, kvm, before, mayfly } = self.palette();
        format!(
            "text {{ font-family: system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif; \
             font-size: 13px; fill: {ink}; }}\n\
             .paper {{ fill: {paper}; }}\n\
             .title {{ font-size: 18px; font-weight: 600; }}\n\
             .heading {{ font-size: 13.5px; }}\n\
             .name {{ font-weight: 600; }}\n\
             .faint, .reason {{ fill: {faint}; }}\n\
             .reason {{ font-size: 11.5px; font-style: italic; }}\n\
             .tick {{ font-size: 11.5px; fill: {faint}; }}\n\
             .rule {{ stroke: {rule}; stroke-width: 1; }}\n\
             .kvm {{ fill: {kvm}; }}\n\
             .before {{ fill: {before}; }}\n\
             .mayfly {{ fill: {mayfly}; }}\n\
             .mayfly-text {{ fill: {mayfly}; font-weight: 600; }}\n"
        )
    }
}

impl fmt::Display for Theme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Theme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let theme = Self::ALL.into_iter().find(|theme| theme.name() == text);
        theme.ok_or_else(|| format!("it is one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}
