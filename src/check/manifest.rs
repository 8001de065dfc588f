//! The manifest: fetched as the gateway fetches it, read by the gateway's own dialect, and judged rule by rule.
//!
//! A sync stops at the first fault; a developer wants all of them. So each tool is also read on its own, and whatever is
//! found is sorted under the rule it breaks. Of one tool only the first fault is known.

use super::report::Rule;
use super::session::{Answer, Session};
use crate::dialects;
use crate::domain::endpoint::{EndpointSettings, SyncPolicy};
use crate::domain::manifest::{SyncFault, SyncReason};
use crate::domain::tool::ToolSpec;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// Largest manifest, in bytes.
const MAX_BYTES: usize = 512_000;

/// Longest fetch.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Most faults of one rule that a line tells.
const TOLD_FAULTS: usize = 3;

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The manifest as a whole.
    Whole,
    /// One tool.
    Tool,
}

/// A rule of manifests, and the reasons a sync gives when it is broken.
#[derive(Clone, Copy)]
pub(super) struct ManifestRule {
    pub(super) rule: Rule,
    pub(super) level: Level,
    pub(super) reasons: &'static [SyncReason],
}

/// What a dialect's manifests look like.
pub(super) struct ManifestForm {
    /// Its rules in the order in which they are looked at, those of the whole first.
    pub(super) rules: &'static [ManifestRule],
    /// Items that are left out without harm, where the dialect knows such.
    pub(super) left_out: Option<Rule>,
    /// The tools as they stand in a manifest; `None` when it has no list of tools.
    pub(super) items: fn(&[u8]) -> Option<Vec<&RawValue>>,
    /// A manifest of these tools that is good as a whole.
    pub(super) wrap: fn(&[&RawValue]) -> String,
    /// Where the contract speaks of discovery.
    pub(super) section: &'static str,
}

/// The tools of a manifest that has them as a member.
pub(super) fn tools_member(body: &[u8]) -> Option<Vec<&RawValue>> {
    #[derive(Deserialize)]
    struct Tools<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
    }
    serde_json::from_slice::<Tools<'_>>(body).ok().map(|manifest| manifest.tools)
}

/// What is offered.
#[derive(Default)]
pub(super) struct Offered {
    /// Whether the manifest is good above its tools.
    pub(super) is_taken: bool,
    pub(super) etag: Option<String>,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) diagnostics: bool,
}

#[derive(Default)]
struct Findings {
    whole: Option<SyncFault>,
    of_tools: Vec<SyncFault>,
    left_out: Vec<SyncFault>,
    items: usize,
    offered: Offered,
}

const TIME: Rule = Rule::new("§13", "manifest: time", "all of it within 10 s");
const SIZE: Rule = Rule::new("§13", "manifest: size", "at most 512,000 bytes");

/// Fetches and judges the manifest; answers the tools that are good.
pub(super) async fn check(session: &mut Session<'_>, form: &ManifestForm) -> Offered {
    let answers = Rule::new(form.section, "manifest: answer", "an answer to the manifest request");
    let status = Rule::new(form.section, "manifest: status", "HTTP 200");
    let answer = match session.send(&dialects::encode_manifest_request(&session.settings, None)).await {
        Ok(answer) => answer,
        Err(sentence) => {
            session.report.fail(answers, sentence);
            skip_rules(session, form, &[status, TIME, SIZE]);
            return Offered::default();
        }
    };
    session.report.ok(answers, "one");
    if answer.status == 200 {
        session.report.ok(status, "HTTP 200");
    } else {
        session.report.fail(status, answer.account());
        skip_rules(session, form, &[TIME, SIZE]);
        return Offered::default();
    }
    judge_transfer(session, &answer);
    let findings = find(&session.settings, form, &answer.body);
    judge_rules(session, form, &findings);
    let (is_taken, etag) = (findings.whole.is_none(), answer.header("etag").map(str::to_owned));
    Offered { is_taken, etag, ..findings.offered }
}

fn skip_rules(session: &mut Session<'_>, form: &ManifestForm, first: &[Rule]) {
    session.report.skip_all(first, "there is no manifest");
    for rule in form.rules {
        session.report.skip(rule.rule, "there is no manifest");
    }
    if let Some(rule) = form.left_out {
        session.report.skip(rule, "there is no manifest");
    }
}

fn judge_transfer(session: &mut Session<'_>, answer: &Answer) {
    session.report.judge(TIME, answer.took <= MAX_TIME, format!("all of it after {} ms", answer.took.as_millis()));
    session.report.judge(SIZE, answer.body.len() <= MAX_BYTES, format!("{} bytes", answer.body.len()));
}

fn find(settings: &EndpointSettings, form: &ManifestForm, body: &[u8]) -> Findings {
    let items = (form.items)(body).unwrap_or_default();
    let mut findings = Findings { items: items.len(), ..Findings::default() };
    let one_by_one = read_one_by_one(settings, form, &items);
    match dialects::decode_manifest(settings, body) {
        Ok(manifest) => {
            findings.offered.diagnostics = manifest.diagnostics;
            findings.offered.tools = manifest.tools.into_iter().map(|tool| tool.spec).collect();
            for skipped in manifest.skipped {
                let harmless = one_by_one.left_out.contains(&skipped.fault);
                if harmless { &mut findings.left_out } else { &mut findings.of_tools }.push(skipped.fault);
            }
        }
        Err(fault) => {
            // Tools that are good by themselves may still have one name, and there may be too many of them.
            let together = dialects::decode_manifest(settings, (form.wrap)(&one_by_one.good).as_bytes());
            let clashes = together.err().filter(|fault| fault.reason == SyncReason::DuplicateName);
            findings.of_tools = one_by_one.faults;
            findings.of_tools.extend(clashes);
            if !findings.of_tools.contains(&fault) {
                findings.whole = Some(fault);
            }
            findings.left_out = one_by_one.left_out;
            findings.offered.tools = one_by_one.tools;
        }
    }
    findings
}

#[derive(Default)]
struct OneByOne<'a> {
    good: Vec<&'a RawValue>,
    tools: Vec<ToolSpec>,
    faults: Vec<SyncFault>,
    left_out: Vec<SyncFault>,
}

/// Reads each tool as if it were the only one.
fn read_one_by_one<'a>(settings: &EndpointSettings, form: &ManifestForm, items: &[&'a RawValue]) -> OneByOne<'a> {
    let strict = EndpointSettings { sync_policy: SyncPolicy::Reject, ..settings.clone() };
    let mut read = OneByOne::default();
    for (at, item) in items.iter().enumerate() {
        // A fault of an item without a name calls it by its place, which is the first one here.
        let in_place = |fault: SyncFault| {
            let word = if fault.message.starts_with("item ") { "item" } else { "tool" };
            let place = format!("{word} {at} of the manifest");
            SyncFault { message: fault.message.replacen(&format!("{word} 0 of the manifest"), &place, 1), ..fault }
        };
        match dialects::decode_manifest(&strict, (form.wrap)(&[item]).as_bytes()) {
            Ok(manifest) => {
                read.tools.extend(manifest.tools.into_iter().map(|tool| tool.spec));
                read.left_out.extend(manifest.skipped.into_iter().map(|skipped| in_place(skipped.fault)));
                read.good.push(item);
            }
            Err(fault) => read.faults.push(in_place(fault)),
        }
    }
    read
}

fn judge_rules(session: &mut Session<'_>, form: &ManifestForm, findings: &Findings) {
    let report = &mut session.report;
    let mut is_read = true;
    for ManifestRule { rule, level, reasons } in form.rules {
        let faults: Vec<&SyncFault> = match level {
            Level::Whole => findings.whole.iter().filter(|fault| reasons.contains(&fault.reason)).collect(),
            Level::Tool => findings.of_tools.iter().filter(|fault| reasons.contains(&fault.reason)).collect(),
        };
        match (level, faults.is_empty()) {
            (_, false) => {
                is_read &= *level == Level::Tool;
                report.fail(*rule, told(&faults));
            }
            (Level::Whole, true) if is_read => report.ok(*rule, "that"),
            (Level::Whole, true) => report.skip(*rule, "the manifest is refused before"),
            (Level::Tool, true) if findings.items == 0 => report.skip(*rule, "there is no tool to read"),
            (Level::Tool, true) if findings.of_tools.is_empty() => {
                report.ok(*rule, format!("that, of all {} tools", findings.items));
            }
            (Level::Tool, true) => report.ok(*rule, "nothing against it, as far as the tools could be read"),
        }
    }
    let rules_know = |level: Level, fault: &SyncFault| {
        form.rules.iter().any(|rule| rule.level == level && rule.reasons.contains(&fault.reason))
    };
    let other = Rule::new(form.section, "manifest: anything else", "a manifest that a sync takes");
    let of_whole = findings.whole.iter().filter(|fault| !rules_know(Level::Whole, fault));
    let of_tools = findings.of_tools.iter().filter(|fault| !rules_know(Level::Tool, fault));
    for fault in of_whole.chain(of_tools) {
        report.fail(other, fault.message.clone());
    }
    if let Some(rule) = form.left_out {
        match findings.left_out.iter().collect::<Vec<_>>() {
            none if none.is_empty() => report.ok(rule, "no others"),
            some => report.skip(rule, told(&some)),
        }
    }
}

fn told(faults: &[&SyncFault]) -> String {
    let mut text: Vec<String> = faults.iter().take(TOLD_FAULTS).map(|fault| fault.message.clone()).collect();
    if faults.len() > TOLD_FAULTS {
        text.push(format!("and {} more", faults.len() - TOLD_FAULTS));
    }
    text.join(" | ")
}
