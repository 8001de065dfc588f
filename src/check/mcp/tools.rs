//! The list of tools: all of its pages, and each tool by every rule.

use super::super::manifest::Offered;
use super::super::report::Rule;
use super::super::session::Session;
use super::exchange::ask;
use crate::dialects::mcp::{self, Dialogue, Pages};
use crate::domain::manifest::{Manifest, SyncFault, SyncReason};
use std::time::Duration;

/// Largest list, in bytes, all pages together.
const MAX_BYTES: usize = 512_000;

/// Longest fetch, all pages together.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Most tools an organization may have.
const MAX_TOOLS: usize = 500;

const ANSWER: Rule = Rule::new("§11.2", "tools/list: answer", "HTTP 200 and a JSON-RPC result for every page");
const MEDIA_TYPE: Rule = Rule::new("§11.2", "tools/list: media type", "application/json or text/event-stream");
const ID: Rule = Rule::new("§11.2", "tools/list: id", "the id of the request");
const FORM: Rule = Rule::new(
    "§11.2",
    "tools/list: form",
    "an object with an array of tools, perhaps a text as nextCursor, and the resultType complete if any",
);
const PAGES: Rule = Rule::new("§11.2", "tools/list: pages", "at most 50, and no cursor twice");
const TIME: Rule = Rule::new("§13", "tools/list: time", "all of it within 10 s");
const SIZE: Rule = Rule::new("§13", "tools/list: size", "at most 512,000 bytes");
const NUMBER: Rule = Rule::new("§13", "tools: number", "at most 500");
const MEMBERS: Rule = Rule::new(
    "§11.2",
    "tools: members",
    "objects with a name and an inputSchema, no member twice, and every known member of its type",
);
const NAMES: Rule = Rule::new("§11.2", "tools: names", "letters, digits, '_', '.' and '-', 64 at most");
const UNIQUE: Rule = Rule::new("§3", "tools: one name each", "no name twice, neither by case nor by '.', '-', '_'");
const RESERVED: Rule = Rule::new("§3", "tools: reserved names", "no name of the gateway's own");
const SCHEMAS: Rule = Rule::new(
    "§11.2",
    "tools: schemas",
    "valid JSON Schemas that refer to nothing outside; that of the arguments of the type object",
);
const HEADERS: Rule = Rule::new(
    "§11.2",
    "tools: x-mcp-header",
    "one name for each header, on strings, integers and booleans that a chain of properties leads to",
);
const OF_LIST: [Rule; 8] = [ANSWER, MEDIA_TYPE, ID, FORM, PAGES, TIME, SIZE, NUMBER];
const OF_TOOLS: [Rule; 6] = [MEMBERS, NAMES, UNIQUE, RESERVED, SCHEMAS, HEADERS];

pub(super) fn skip(session: &mut Session<'_>, why: &str) {
    session.report.skip_all(&OF_LIST, why);
    session.report.skip_all(&OF_TOOLS, why);
}

/// Fetches and judges the list; answers the tools that are good.
pub(super) async fn check(session: &mut Session<'_>, dialogue: &Dialogue) -> Offered {
    let mut fetch = Fetch::default();
    let broken = fetch.run(session, dialogue).await.err();
    for rule in [ANSWER, MEDIA_TYPE, ID, FORM, PAGES] {
        match &broken {
            Some((fault, account)) if *fault == rule => session.report.fail(rule, account.clone()),
            None => session.report.ok(rule, fetch.account(rule)),
            Some(_) => session.report.skip(rule, "the list ends before"),
        }
    }
    let list = match &broken {
        None => mcp::decode_tools(&session.settings, fetch.pages.as_slice()).ok(),
        Some(_) => None,
    };
    let Some(list) = list else {
        session.report.skip_all(&[TIME, SIZE, NUMBER], "there is no whole list");
        session.report.skip_all(&OF_TOOLS, "there is no whole list");
        return Offered::default();
    };
    session.report.judge(TIME, fetch.took <= MAX_TIME, format!("all of it after {} ms", fetch.took.as_millis()));
    session.report.judge(SIZE, fetch.bytes <= MAX_BYTES, format!("{} bytes", fetch.bytes));
    judge_tools(session, &list);
    let tools = list.tools.into_iter().map(|tool| tool.spec).collect();
    Offered { is_taken: true, tools, ..Offered::default() }
}

/// The fetch of all pages, as far as it came.
#[derive(Default)]
struct Fetch {
    pages: Pages,
    took: Duration,
    bytes: usize,
    media_type: String,
}

impl Fetch {
    /// The error is the rule that is broken, and how.
    async fn run(&mut self, session: &Session<'_>, dialogue: &Dialogue) -> Result<(), (Rule, String)> {
        let mut cursor: Option<String> = None;
        loop {
            let id = 20 + self.pages.as_slice().len() as u64;
            let request = mcp::encode_list(&session.settings, dialogue, id, cursor.as_deref());
            let reply = ask(session, &request, id).await.map_err(|sentence| (ANSWER, sentence))?;
            self.took += reply.answer.took;
            self.bytes += reply.answer.body.len();
            if reply.answer.status == 200 {
                self.media_type = reply.media_type().map_err(|other| (MEDIA_TYPE, other))?;
            }
            if reply.has_other_id() {
                return Err((ID, reply.account()));
            }
            let result = reply.result().filter(|_| reply.answer.status == 200);
            let result = result.ok_or_else(|| (ANSWER, reply.account()))?;
            let page = mcp::decode_page(result).map_err(|fault| (FORM, fault.message))?;
            cursor = self.pages.add(page).map_err(|fault| (PAGES, fault.message))?;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    fn account(&self, rule: Rule) -> String {
        let pages = self.pages.as_slice().len();
        if rule == MEDIA_TYPE {
            self.media_type.clone()
        } else if rule == PAGES {
            if pages == 1 { "one".to_owned() } else { format!("{pages}, and an end") }
        } else {
            "that".to_owned()
        }
    }
}

/// The rule a fault of a tool stands at.
fn rule_of(fault: &SyncFault) -> Rule {
    match fault.reason {
        SyncReason::BadName => NAMES,
        SyncReason::DuplicateName => UNIQUE,
        SyncReason::ReservedName => RESERVED,
        SyncReason::BadSchema if fault.message.contains("x-mcp-header") => HEADERS,
        SyncReason::BadSchema => SCHEMAS,
        // The others are not said of tools of this dialect; whatever may be wrong is wrong with the members.
        SyncReason::BadManifest
        | SyncReason::Unreachable
        | SyncReason::Timeout
        | SyncReason::BadStatus
        | SyncReason::Unauthorized
        | SyncReason::NotJson
        | SyncReason::TooLarge
        | SyncReason::UnsupportedVersion
        | SyncReason::TooManyTools
        | SyncReason::OrgToolLimit
        | SyncReason::NameTaken
        | SyncReason::BadDescription
        | SyncReason::BadRisk
        | SyncReason::BlockedAddress => MEMBERS,
    }
}

fn judge_tools(session: &mut Session<'_>, list: &Manifest) {
    let report = &mut session.report;
    let (good, bad) = (list.tools.len(), list.skipped.len());
    let account = if bad == 0 { format!("{good}") } else { format!("{} of which {bad} are left out", good + bad) };
    report.judge(NUMBER, good <= MAX_TOOLS, account);
    for rule in OF_TOOLS {
        let mut holds = true;
        // A line for each tool: whoever wrote them wants to know of all.
        for skipped in list.skipped.iter().filter(|skipped| rule_of(&skipped.fault) == rule) {
            holds = false;
            report.fail(rule, skipped.fault.message.clone());
        }
        if !holds {
            continue;
        }
        if good + bad == 0 {
            report.skip(rule, "there is no tool to read");
        } else if rule == HEADERS {
            let declared = list.tools.iter().filter_map(|tool| tool.spec.mcp.as_deref());
            let params: usize = declared.map(|tool| tool.header_params.len()).sum();
            report.ok(rule, format!("{params} of them"));
        } else if bad == 0 {
            report.ok(rule, format!("that, of all {good} tools"));
        } else {
            report.ok(rule, "nothing against it, as far as the tools could be read");
        }
    }
}
