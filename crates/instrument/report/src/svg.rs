//! A record as one picture: for each experiment a bar of this host's KVM, one of an earlier design, and one of Mayfly.
//!
//! The picture is an SVG of fixed size that needs nothing beside itself and runs no program. Experiments of one unit share
//! one logarithmic axis. [`rows`] names what is shown of each experiment; [`Chart`] finds it in the record; this file
//! lays it out. All colours are of one [`Theme`], so that a page can offer one picture for a light background and one for
//! a dark one.

mod chart;
mod date;
mod facts;
mod label;
mod rows;
mod theme;

use std::fmt;

use maud::{Markup, PreEscaped, html};
use mayfly_record::{Record, Unit};

use self::chart::{Bar, Chart, Panel, Source};
use self::label::{cut, micro};
use crate::page::axis::Axis;

pub use rows::{PICTURED, Pictured};
pub use theme::Theme;

/// Widths and heights, in units of the picture; a font of 13 is read well where the picture is 720 pixels wide or more.
const WIDTH: u32 = 720;
const MARGIN: u32 = 24;
/// Where bars begin: right of their labels.
const LEFT: u32 = 190;
/// Where the longest bar ends: its number stands right of it.
const RIGHT: u32 = 610;
const TITLE: u32 = 64;
const HEADING: u32 = 26;
const BAR: u32 = 14;
const BAR_PITCH: u32 = 19;
const PANEL_GAP: u32 = 14;
const AXIS: u32 = 30;
const FACT: u32 = 17;

/// Columns of a line of facts, and of a reason why there is no bar: more would not fit beside the margin.
const FACT_COLUMNS: usize = 104;
const REASON_COLUMNS: usize = 88;
const LABEL_COLUMNS: usize = 26;

/// A record drawn as a picture, by its [`Display`](fmt::Display).
pub struct Picture<'a> {
    record: &'a Record,
    theme: Theme,
}

impl<'a> Picture<'a> {
    /// A picture of `record` in the colours of `theme`.
    pub fn new(record: &'a Record, theme: Theme) -> Self {
        Self { record, theme }
    }

    fn markup(&self) -> Markup {
        let chart = Chart::of(self.record);
        let facts = facts::lines(self.record, FACT_COLUMNS);
        let sections = Section::all(&chart.panels);
        let below = sections.last().map_or(TITLE, |section| section.bottom);
        let height = below + MARGIN / 2 + FACT * length(facts.len()) + MARGIN / 2;
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height)
                role="img" aria-labelledby="title desc" {
                title id="title" { (TOLD) }
                desc id="desc" { (chart.told()) " " (facts.join(" ")) }
                style { (PreEscaped(self.theme.style())) }
                rect class="paper" width=(WIDTH) height=(height) rx="8" {}
                text class="title" x=(MARGIN) y="32" { (TOLD) }
                text class="faint" x=(MARGIN) y="52" {
                    @if sections.is_empty() { "This record has none of the rows that are drawn." }
                    @else { (READING) }
                }
                @for section in &sections { (section.markup()) }
                @for (line, number) in facts.iter().zip(0..) {
                    text class="faint" x=(MARGIN) y=(below + MARGIN / 2 + FACT * number + 12) { (line) }
                }
            }
        }
    }
}

/// What the picture shows, in a line.
const TOLD: &str = "What a VM waits for: this host's KVM, an earlier design, Mayfly";

/// How to read it.
const READING: &str = "Medians, logarithmic scale; shorter is better. The earlier designs and Mayfly run on the software machine.";

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A character that XML does not have, escaped or not, would make the file no SVG.
        f.write_str(&self.markup().into_string().replace(is_no_xml, "\u{fffd}"))
    }
}

/// Whether XML 1.0 has no such character (production 2, `Char`).
fn is_no_xml(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Panels of one unit, above one axis.
struct Section<'a> {
    unit: &'a Unit,
    axis: Axis,
    /// Each with the height at which it begins.
    panels: Vec<(u32, &'a Panel)>,
    bottom: u32,
}

impl<'a> Section<'a> {
    /// The sections of all panels, from the top of the picture down, units in the order in which they come.
    fn all(panels: &'a [Panel]) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        let mut top = TITLE;
        for unit in units(panels) {
            let of_unit = || panels.iter().filter(move |panel| panel.unit == *unit);
            let numbers = of_unit().flat_map(|panel| panel.bars.iter().filter_map(Bar::number));
            let mut bottom = top;
            let panels = of_unit()
                .map(|panel| {
                    let begin = bottom;
                    bottom += HEADING + BAR_PITCH * length(panel.bars.len()) + PANEL_GAP;
                    (begin, panel)
                })
                .collect();
            bottom += AXIS - PANEL_GAP;
            sections.push(Self { unit, axis: Axis::of(numbers), panels, bottom });
            top = bottom;
        }
        sections
    }

    fn markup(&self) -> Markup {
        let ticks = self.axis.ticks(self.unit);
        html! {
            @for (top, panel) in &self.panels {
                @let bars = top + HEADING;
                @for (at, _) in &ticks {
                    line class="rule" x1=(x(*at)) x2=(x(*at)) y1=(bars - 4) y2=(bars + BAR_PITCH * length(panel.bars.len())) {}
                }
                text class="heading" x=(MARGIN) y=(top + 16) {
                    tspan class="name" { (panel.experiment) }
                    tspan class="faint" dx="8" { (panel.caption) }
                }
                @for (bar, number) in panel.bars.iter().zip(0..) {
                    (self.bar(bar, bars + BAR_PITCH * number))
                }
            }
            @for (at, told) in &ticks {
                text class="tick" x=(x(*at)) y=(self.bottom - AXIS + 17) text-anchor="middle" { (micro(told)) }
            }
        }
    }

    fn bar(&self, bar: &Bar, top: u32) -> Markup {
        let class = match bar.source {
            Source::Kvm => "kvm",
            Source::Before => "before",
            Source::Mayfly => "mayfly",
        };
        let base = top + BAR - 3;
        html! {
            text class=(format!("label {class}-text")) x=(LEFT - 10) y=(base) text-anchor="end" {
                (cut(&bar.label, LABEL_COLUMNS))
            }
            @match &bar.value {
                Ok(value) => {
                    @let end = self.axis.at(value.number);
                    @let width = ((f64::from(RIGHT - LEFT)) * end).max(2.0);
                    rect class=(class) x=(LEFT) y=(top) width=(format!("{width:.1}")) height=(BAR) rx="2" {}
                    text class=(format!("value {class}-text")) x=(format!("{:.1}", f64::from(LEFT) + width + 7.0)) y=(base) {
                        (micro(&value.told(self.unit)))
                    }
                }
                Err(why) => text class="reason" x=(LEFT + 4) y=(base) {
                    title { (why) }
                    (cut(why, REASON_COLUMNS))
                }
            }
        }
    }
}

/// The units of panels, each once.
fn units(panels: &[Panel]) -> Vec<&Unit> {
    let mut units: Vec<&Unit> = Vec::new();
    for panel in panels {
        if !units.contains(&&panel.unit) {
            units.push(&panel.unit);
        }
    }
    units
}

fn x(at: f64) -> String {
    format!("{:.1}", f64::from(LEFT) + f64::from(RIGHT - LEFT) * at)
}

fn length(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
