//! `mayfly man` and `mayfly completions`: what else is made of the command line's definition.

use std::io::{self, Write};

use clap_complete::generate;
use clap_mangen::Man;

use crate::args::{self, Completions};
use crate::failure::Failure;
use crate::output::Stream;

/// The program's name.
const NAME: &str = "mayfly";

/// Prints the manual page: the command, and a section for each subcommand.
pub(crate) fn man() -> Result<(), Failure> {
    let mut command = args::command();
    command.build();
    let whole = Man::new(command.clone());
    let mut page = [
        rendered(|to| whole.render_title(to)),
        rendered(|to| whole.render_name_section(to)),
        rendered(|to| whole.render_synopsis_section(to)),
        rendered(|to| whole.render_description_section(to)),
        rendered(|to| whole.render_options_section(to)),
        commands(&command, &rendered(|to| whole.render_subcommands_section(to))),
    ]
    .concat();
    // In the order in which they are declared.
    for (name, subcommand) in all_below(NAME, &command) {
        let man = Man::new(subcommand.clone());
        page += &format!(".SH {name}\n").to_uppercase();
        for section in [
            rendered(|to| man.render_synopsis_section(to)),
            rendered(|to| man.render_description_section(to)),
            rendered(|to| man.render_options_section(to)),
            as_written(subcommand, &man),
        ] {
            page += &section.replace(".SH ", ".SS ");
        }
    }
    page += &as_written(&command, &whole);
    page += &rendered(|to| whole.render_version_section(to));
    Stream::Out.write(&page)
}

/// The subcommands of a command of that name, and behind each its own, with their whole names.
fn all_below<'a>(name: &str, command: &'a clap::Command) -> Vec<(String, &'a clap::Command)> {
    let each = command.get_subcommands().filter(|one| one.get_name() != "help");
    each.flat_map(|one| {
        let name = format!("{name} {}", one.get_name());
        let below = all_below(&name, one);
        [(name, one)].into_iter().chain(below)
    })
    .collect()
}

/// A part of the page, in the language of man(7).
fn rendered(part: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to a Vec does not fail.
    let _ = part(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The list of subcommands, which are told of below: none has a page of its own, as the generator takes for granted.
fn commands(command: &clap::Command, listed: &str) -> String {
    let names = command.get_subcommands().map(|one| one.get_name().replace('-', r"\-"));
    names.fold(listed.to_owned(), |listed, name| {
        listed.replace(&format!(r"{NAME}\-{name}(1)"), &format!("{NAME} {name}"))
    })
}

/// Examples and exit codes, line by line as `--help` has them, each below its heading.
fn as_written(command: &clap::Command, man: &Man) -> String {
    if command.get_after_help().is_none() {
        return String::new();
    }
    let text = rendered(|to| man.render_extra_section(to));
    let (_, said) = text.split_once(".SH EXTRA\n").unwrap_or_default();
    let lines = said.lines().filter(|line| !line.is_empty()).enumerate();
    let sections = lines.map(|(number, line)| match line.strip_suffix(':') {
        Some(heading) if !line.starts_with(' ') => {
            let end = if number == 0 { "" } else { ".fi\n" };
            format!("{end}.SH {}\n.nf\n", heading.to_uppercase())
        }
        _ => format!("{line}\n"),
    });
    sections.collect::<String>() + ".fi\n"
}

/// Prints completions for a shell.
pub(crate) fn completions(options: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(options.shell, &mut args::with_values(), NAME, &mut text);
    Stream::Out.write(&String::from_utf8_lossy(&text))
}
