//! Laws as one page of HTML, which needs nothing beside itself: what was found in a list first, then each law in words, as a
//! picture on two logarithmic axes, and with its points in a table.
//!
//! Everything that a picture shows is in the table below it, for readers who listen to the page and for readers who copy
//! from it.

mod plot;

use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mayfly_record::units::duration;

use crate::document::{Document, Entry};
use crate::law::Law;
use crate::series::Point;
use crate::text::{Text, beside, said, things};

const STYLE: &str = include_str!("page/style.css");

/// Documents laid out for a browser, by its [`Display`](fmt::Display).
#[derive(Debug)]
pub struct Page<'a>(pub &'a [Document]);

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = match self.0 {
            [one] => format!("How KVM's calls grow on Linux {}", one.host.kernel),
            all => format!("How KVM's calls grow, on {} kernels", all.len()),
        };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (title) }
                    @for (which, document) in self.0.iter().enumerate() {
                        (section(which, document, self.0.len() > 1))
                    }
                }
            }
        };
        f.write_str(&page.into_string())
    }
}

/// A document; its number keeps what links lead to apart from that of others.
fn section(which: usize, document: &Document, is_one_of_several: bool) -> Markup {
    let about = Text::new(document, usize::MAX);
    let id = |entry: &Entry| format!("{which}-{}", entry.pair.name().replace('/', "-"));
    let (measured, skipped): (Vec<&Entry>, Vec<&Entry>) =
        document.laws.iter().partition(|entry| entry.law.is_some());
    html! {
        section {
            @if is_one_of_several { h2 { "Linux " (document.host.kernel) } }
            p { (about.head(document.laws.len())) }
            ul.found {
                @for entry in &measured {
                    li { a href=(format!("#{}", id(entry))) { code { (entry.pair.name()) } } ": " (found(entry)) }
                }
            }
            div.laws {
                @for entry in &measured {
                    @if let Some(law) = &entry.law { (article(entry, law, &id(entry))) }
                }
            }
            @if !skipped.is_empty() {
                h2 { "Not measured" }
                dl {
                    @for entry in &skipped {
                        dt { code { (entry.pair.name()) } }
                        dd { (entry.skipped.as_deref().unwrap_or("nothing is known of it")) }
                    }
                }
            }
            h2 { "Host" }
            dl {
                @for (name, fact) in host(document) { dt { (name) } dd { (fact) } }
            }
        }
    }
}

/// The form, and the times at both ends.
fn found(entry: &Entry) -> String {
    let form = match &entry.law {
        Some(law) if law.holds => law.shape.name(),
        _ => "no law",
    };
    match entry.series.points.as_slice() {
        [first, .., last] => {
            format!("{form}, {} to {}", duration(first.time()), duration(last.time()))
        }
        _ => form.to_owned(),
    }
}

fn article(entry: &Entry, law: &Law, id: &str) -> Markup {
    let pair = entry.pair;
    html! {
        article id=(id) {
            h2 { code { (pair.name()) } }
            p.about { (pair.call.of_kvm()) ", " (pair.dimension.about()) }
            p { (said(entry, law)) }
            @for missing in &entry.series.missing {
                p { "It could not be measured " (beside(pair.dimension)) " " (things(missing.n as f64, pair.dimension)) ": " (missing.why) "." }
            }
            (plot::plot(entry, law))
            details {
                summary { "The points" }
                table {
                    thead { tr { th.number { (pair.dimension.name()) } th.number { "median" } th.number { "sleeps" } th { "" } } }
                    tbody { @for point in &entry.series.points { (row(point, entry)) } }
                }
            }
        }
    }
}

fn row(point: &Point, entry: &Entry) -> Markup {
    html! {
        tr {
            td.number { (things(point.n as f64, entry.pair.dimension)) }
            td.number { (duration(point.time())) }
            td.number { (duration(point.slept())) }
            td { @if point.held_out { "held out" } }
        }
    }
}

fn host(document: &Document) -> Vec<(&'static str, String)> {
    let host = &document.host;
    let known = |name, fact: &Option<String>| Some((name, fact.clone()?));
    [
        Some(("kernel", format!("{} ({})", host.kernel, host.arch))),
        known("processor", &host.cpu),
        Some(("CPUs", host.cpus.to_string())),
        host.hz.map(|hz| ("HZ", hz.to_string())),
        known("KVM", &host.kvm_module),
        host.kvm_tdp_mmu.map(|is_it| ("TDP MMU", if is_it { "yes" } else { "no" }.to_owned())),
        known("product", &host.product),
        known("governor", &host.governor),
        Some(("rounds", document.rounds.to_string())),
        Some(("seed", document.seed.to_string())),
        Some(("Mayfly", host.mayfly.clone())),
        Some(("command", host.command.clone())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests;
