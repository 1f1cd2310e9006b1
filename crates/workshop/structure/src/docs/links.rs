//! Links to files of the repository, and to headings in them.

use std::path::Path;

use super::missing::Missing;
use super::page::{Link, Page};
use super::paths::{Tree, normal};

/// The links of a page that lead nowhere.
pub(super) fn missing(root: &Path, page: &Page, pages: &[Page], tree: &Tree) -> Vec<Missing> {
    let of_link = |link: &Link| {
        let what = fault(root, page, pages, tree, &link.to)?;
        Some(Missing {
            line: link.line,
            name: link.to.clone(),
            what: format!("the link to `{}` {what}", link.to),
        })
    };
    page.links.iter().filter_map(of_link).collect()
}

/// What is wrong with a link.
fn fault(root: &Path, page: &Page, pages: &[Page], tree: &Tree, to: &str) -> Option<String> {
    if to.contains("://") || to.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        to.split_once('#').map_or((to, None), |(path, anchor)| (path, Some(anchor)));
    let target =
        if path.is_empty() { Some(page.path.clone()) } else { normal(&page.folder().join(path)) };
    let Some(mut target) = target.filter(|target| tree.has(target)) else {
        return Some("leads to no file or folder of this repository: correct the path".to_owned());
    };
    let anchor = anchor?;
    if target.extension().is_none_or(|of| of != "md") {
        if is_line(anchor) {
            return None;
        }
        // A folder is shown with its README.
        target.push("README.md");
    }
    let read;
    let anchors = if let Some(page) = pages.iter().find(|page| page.path == target) {
        &page.anchors
    } else {
        read = Page::read(root, target.clone()).ok().map(|page| page.anchors).unwrap_or_default();
        &read
    };
    (!anchors.contains(anchor)).then(|| {
        let is_near = |known: &&String| known.contains(anchor) || anchor.contains(known.as_str());
        let near = anchors.iter().find(is_near);
        let or = near.map(|known| format!("; there is `#{known}`")).unwrap_or_default();
        format!("leads to no heading of {}: correct what follows `#`{or}", target.display())
    })
}

/// Whether an anchor is a line of a file of source, as in `#L12`.
fn is_line(anchor: &str) -> bool {
    anchor
        .strip_prefix('L')
        .is_some_and(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()))
}
