//! `tools/list`: what a key may call, page by page.
//!
//! The items are rendered once for each set of tools and each era. A cursor names the last tool that was shown, so a list
//! that changed meanwhile goes on at the same place.

use super::members::quoted;
use super::reply::Fault;
use super::request::{Params, text};
use super::{LIST_HINTS, RESULT_META, get_run, item};
use crate::domain::tool::Dialect;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::{CatalogTool, ShownTo, ShownTools, VisibleSet};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Most tools on one page.
const PAGE: usize = 100;

/// Stands before the id in a cursor.
const AFTER: &str = "after ";

/// One page.
pub(super) fn tools(access: &AgentAccess, era: ShownTo, has_tasks: bool, params: &Params<'_>) -> Result<String, Fault> {
    let visible = access.catalog().visible(&access.key().groups);
    let shown = shown(&visible, era);
    let after = text("cursor", params.cursor)?.map(|cursor| id_in(&cursor)).transpose()?;
    let tools = visible.tools();
    let begin = after.map_or(0, |after| tools.partition_point(|tool| tool.id <= after));
    let end = tools.len().min(begin + PAGE);
    let mut items: Vec<&str> = shown.items[begin..end].iter().map(|item| &**item).collect();
    let own = get_run::is_listed(access, &visible, has_tasks).then_some(get_run::TOOL);
    let is_last = end == tools.len() && (own.is_none() || items.len() < PAGE);
    if is_last {
        items.extend(own);
    }
    let next = (!is_last).then(|| tools[end - 1].id.as_str());
    let next = next.map(|id| format!(r#","nextCursor":{}"#, quoted(&cursor_after(id)))).unwrap_or_default();
    let items = items.join(",");
    Ok(match era {
        ShownTo::Modern => {
            format!(r#"{{"resultType":"complete","tools":[{items}]{next},{LIST_HINTS},{RESULT_META}}}"#)
        }
        ShownTo::Legacy => format!(r#"{{"tools":[{items}]{next}}}"#),
    })
}

/// A list of nothing.
pub(super) fn nothing(member: &str, era: ShownTo) -> String {
    match era {
        ShownTo::Modern => format!(r#"{{"resultType":"complete","{member}":[],{LIST_HINTS},{RESULT_META}}}"#),
        ShownTo::Legacy => format!(r#"{{"{member}":[]}}"#),
    }
}

/// A text that changes whenever the list changes that a modern client of this key sees.
pub(super) fn mark(access: &AgentAccess, has_tasks: bool) -> ([u8; 32], bool) {
    let visible = access.catalog().visible(&access.key().groups);
    (shown(&visible, ShownTo::Modern).hash, get_run::is_listed(access, &visible, has_tasks))
}

fn shown(visible: &VisibleSet, era: ShownTo) -> &ShownTools {
    visible.shown(era, |tools| render(tools, era))
}

fn render(tools: &[Arc<CatalogTool>], era: ShownTo) -> ShownTools {
    let items: Box<[Box<str>]> = tools.iter().map(|tool| item::of(tool, era).into_boxed_str()).collect();
    let mut hash = Sha256::new();
    for item in &items {
        hash.update((item.len() as u64).to_be_bytes());
        hash.update(item.as_bytes());
    }
    ShownTools { items, hash: hash.finalize().into() }
}

fn cursor_after(id: &str) -> String {
    URL_SAFE_NO_PAD.encode([AFTER, id].concat())
}

fn id_in(cursor: &str) -> Result<String, Fault> {
    let bad = || Fault::invalid_params("cursor: give the nextCursor of the page before, unchanged");
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
    let id = String::from_utf8(bytes).ok().and_then(|text| text.strip_prefix(AFTER).map(str::to_owned));
    let is_id = |id: &String| {
        let prefix = id.split_once(':').map(|(prefix, _)| prefix);
        Dialect::ALL.iter().any(|dialect| Some(dialect.id_prefix()) == prefix)
    };
    id.filter(is_id).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_of_ours_or_refused() {
        assert_eq!(id_in(&cursor_after("mcp:a.b")), Ok("mcp:a.b".to_owned()));
        let foreign = URL_SAFE_NO_PAD.encode("mcp:a");
        let unknown = cursor_after("smtp:a");
        for bad in ["", "!", "abc", "YWZ0ZXIg", foreign.as_str(), unknown.as_str()] {
            assert!(id_in(bad).is_err(), "{bad}");
        }
    }
}
