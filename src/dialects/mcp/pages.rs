//! The pages of a server's list of tools.

use super::super::checks::{object, quoted};
use crate::domain::manifest::{SyncFault, SyncReason};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashSet;

/// Most pages of one list.
pub const MAX_PAGES: usize = 50;

/// One answer to `tools/list`.
#[derive(Debug)]
pub struct Page {
    /// The tools, as they came.
    pub tools: Vec<Box<RawValue>>,
    /// What to ask on with; an empty text is a cursor too.
    pub next_cursor: Option<String>,
}

/// Reads one page.
pub fn decode_page(result: &RawValue) -> Result<Page, SyncFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members {
        tools: Vec<Box<RawValue>>,
        next_cursor: Option<String>,
        result_type: Option<String>,
    }
    let bad = |message: String| SyncFault::new(SyncReason::BadManifest, message);
    let form =
        "the result of tools/list must be an object with an array of tools, and a text as nextCursor if there is one";
    let said: Members = object(result.get().as_bytes()).ok_or_else(|| bad(form.to_owned()))?;
    match said.result_type.as_deref() {
        None | Some("complete") => Ok(Page { tools: said.tools, next_cursor: said.next_cursor }),
        Some(other) => {
            Err(bad(format!("the result of tools/list has the type {} and must be complete", quoted(other))))
        }
    }
}

/// The pages of one list, as they are followed.
#[derive(Debug, Default)]
pub struct Pages {
    pages: Vec<Page>,
    cursors: HashSet<String>,
}

impl Pages {
    /// Adds the page that was asked for; answers the cursor of the next one, or `None` when the list is whole. A cursor
    /// that came before leads in a circle, and a list without an end is none.
    pub fn add(&mut self, page: Page) -> Result<Option<String>, SyncFault> {
        let next = page.next_cursor.clone();
        self.pages.push(page);
        let Some(cursor) = next else { return Ok(None) };
        if !self.cursors.insert(cursor.clone()) {
            return Err(SyncFault::new(
                SyncReason::BadManifest,
                format!("tools/list gives the cursor {} twice, so its pages never end", quoted(&cursor)),
            ));
        }
        if self.pages.len() == MAX_PAGES {
            let message = format!("tools/list has more than {MAX_PAGES} pages: put more tools on one");
            return Err(SyncFault::new(SyncReason::BadManifest, message));
        }
        Ok(Some(cursor))
    }

    /// Every page so far, in order.
    pub fn as_slice(&self) -> &[Page] {
        &self.pages
    }
}
