//! A page of the documentation, as far as names are concerned: its code, its links, and the anchors of its headings.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::Fault;
use crate::manifest::{line_at, text};

/// A page.
pub(super) struct Page {
    /// Relative to the repository's root.
    pub(super) path: PathBuf,
    pub(super) characters: usize,
    pub(super) snippets: Vec<Snippet>,
    pub(super) links: Vec<Link>,
    /// What stands after `#` in a link to a place of the page.
    pub(super) anchors: BTreeSet<String>,
}

/// A code span or a code block.
pub(super) struct Snippet {
    /// Each line with its number, from 1.
    pub(super) lines: Vec<(usize, String)>,
    /// Whether it may hold commands, and is not marked as of another language.
    pub(super) is_shell: bool,
}

/// A link or an image.
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) to: String,
}

impl Page {
    pub(super) fn read(root: &Path, path: PathBuf) -> Result<Page, Fault> {
        let text = text(root, &path)?;
        let characters = text.chars().count();
        let mut reader = Reader::new(&text);
        let options =
            Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
        for (event, range) in Parser::new_ext(&text, options).into_offset_iter() {
            reader.take(event, range);
        }
        let Reader { snippets, links, anchors, .. } = reader;
        Ok(Page { path, characters, snippets, links, anchors })
    }

    /// The folder of the page.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

struct Reader<'a> {
    text: &'a str,
    snippets: Vec<Snippet>,
    links: Vec<Link>,
    anchors: BTreeSet<String>,
    /// The code block that is being read.
    block: Option<Snippet>,
    /// The text of the heading that is being read.
    heading: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Reader<'a> {
        Reader {
            text,
            snippets: Vec::new(),
            links: Vec::new(),
            anchors: BTreeSet::new(),
            block: None,
            heading: None,
        }
    }

    fn take(&mut self, event: Event<'_>, range: Range<usize>) {
        let line = line_at(self.text, range.start);
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let is_shell = match kind {
                    CodeBlockKind::Indented => true,
                    CodeBlockKind::Fenced(language) => {
                        matches!(&*language, "" | "sh" | "bash" | "console" | "shell" | "text")
                    }
                };
                self.block = Some(Snippet { lines: Vec::new(), is_shell });
            }
            Event::End(TagEnd::CodeBlock) => self.snippets.extend(self.block.take()),
            Event::Start(Tag::Heading { .. }) => self.heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                if let Some(heading) = self.heading.take() {
                    self.anchor(&heading);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.links.push(Link { line, to: dest_url.to_string() });
            }
            Event::Code(code) => {
                if let Some(heading) = &mut self.heading {
                    heading.push_str(&code);
                }
                let lines = vec![(line, code.replace('\n', " "))];
                self.snippets.push(Snippet { lines, is_shell: true });
            }
            Event::Text(text) => {
                if let Some(block) = &mut self.block {
                    let numbered = text.lines().enumerate();
                    block
                        .lines
                        .extend(numbered.map(|(index, text)| (line + index, text.to_owned())));
                } else if let Some(heading) = &mut self.heading {
                    heading.push_str(&text);
                }
            }
            Event::Html(html) | Event::InlineHtml(html) => self.html(&html, line),
            _ => {}
        }
    }

    /// The anchor that GitHub gives a heading: its words in small letters, with `-` between them and no other signs. A
    /// heading that is there already gets a number.
    fn anchor(&mut self, heading: &str) {
        let kept = heading
            .trim()
            .chars()
            .filter(|sign| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_'));
        let slug: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let mut anchor = slug.clone();
        let mut number = 0;
        while !self.anchors.insert(anchor) {
            number += 1;
            anchor = format!("{slug}-{number}");
        }
    }

    /// Links and anchors in HTML: `src="…"`, `id="…"` and their like.
    fn html(&mut self, html: &str, line: usize) {
        let mut pieces = html.split('"');
        while let (Some(before), Some(value)) = (pieces.next(), pieces.next()) {
            let name =
                before.trim_end_matches('=').rsplit(char::is_whitespace).next().unwrap_or("");
            match name {
                "src" | "href" | "srcset" => self.links.push(Link { line, to: value.to_owned() }),
                "id" | "name" => {
                    self.anchors.insert(value.to_owned());
                }
                _ => {}
            }
        }
    }
}
