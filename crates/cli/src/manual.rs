//! `mayfly man` and `mayfly completions`: what else is made of the command line's definition.

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
    let mut page = Vec::new();
    // Writing to a Vec does not fail.
    let _ = Man::new(command.clone()).render(&mut page);
    // In the order in which they are declared.
    for name in args::names() {
        let Some(subcommand) = command.find_subcommand(&name) else { continue };
        page.extend_from_slice(format!(".SH {NAME} {name}\n").to_uppercase().as_bytes());
        let man = Man::new(subcommand.clone());
        let _ = man.render_synopsis_section(&mut page);
        let _ = man.render_description_section(&mut page);
        let _ = man.render_options_section(&mut page);
    }
    Stream::Out.write(&String::from_utf8_lossy(&page))
}

/// Prints completions for a shell.
pub(crate) fn completions(options: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(options.shell, &mut args::with_values(), NAME, &mut text);
    Stream::Out.write(&String::from_utf8_lossy(&text))
}
