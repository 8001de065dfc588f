//! The reviewer: an organization's own service that decides about runs of risk `reviewed`, shortly; what it does not
//! decide, a teammate does.

use super::Engine;
use super::actors::org_handle::OrgHandle;
use super::approval::Verdict;
use super::dispatch::hook::HookMessage;
use super::store_port::Decided;
use crate::domain::approval::{Approval, ApprovalStage};
use crate::domain::json::JsonText;
use crate::domain::run::Run;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// Longest reason of a reviewer that is kept, in characters.
const LONGEST_REASON: usize = 500;

/// What the reviewer is asked.
#[derive(Serialize)]
struct Question<'a> {
    r#type: &'static str,
    timestamp: String,
    data: QuestionData<'a>,
}

#[derive(Serialize)]
struct QuestionData<'a> {
    run: String,
    tool: &'a str,
    arguments: &'a RawValue,
    caller: Option<&'a str>,
    endpoint: &'a str,
}

/// What the reviewer says.
#[derive(Debug, Deserialize)]
struct Said {
    decision: Word,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Approve,
    Deny,
    Escalate,
}

impl Engine {
    /// Asks the reviewer about a run that was just held, where one is to be asked, and carries out what it says. Silence
    /// and errors pass the run to a teammate; so does a crash, by the due table.
    pub(super) async fn ask_reviewer(&self, org: &OrgHandle, run: &Arc<Run>, approval: &Approval) {
        if approval.stage != ApprovalStage::Reviewer {
            return;
        }
        let said = self.reviewers_word(org, run, approval).await;
        let approve = match said.as_ref().map(|said| said.decision) {
            Some(Word::Approve) => true,
            Some(Word::Deny) => false,
            Some(Word::Escalate) | None => return self.pass_to_teammate(run).await,
        };
        let note = said.and_then(|said| said.reason).map(|reason| reason.chars().take(LONGEST_REASON).collect());
        let verdict = Verdict {
            approve,
            stage: ApprovalStage::Reviewer,
            by: "reviewer".to_owned(),
            denied_reason: "denied_by_reviewer",
            note,
            audit: None,
        };
        match self.decide(approval.org_id, approval.id, verdict).await {
            // A person was quicker or is asked already, or it was cancelled.
            Ok(Decided::Now(..) | Decided::Before(_)) => {}
            Ok(Decided::Changed) => self.pass_to_teammate(run).await,
            Err(error) => {
                tracing::warn!(run = %run.intent.id, %error, "a reviewer's decision could not be stored");
                self.pass_to_teammate(run).await;
            }
        }
    }

    async fn reviewers_word(&self, org: &OrgHandle, run: &Run, approval: &Approval) -> Option<Said> {
        let catalog = org.catalog();
        let hook = catalog.org.reviewer.clone()?;
        let intent = &run.intent;
        let question = Question {
            r#type: "tool.review",
            timestamp: self.clock().now().to_string(),
            data: QuestionData {
                run: intent.id.to_string(),
                tool: &intent.tool,
                arguments: intent.arguments().raw(),
                caller: intent.caller.as_deref(),
                endpoint: &intent.endpoint_name,
            },
        };
        let body = serde_json::value::to_raw_value(&question).expect("text and JSON can be written");
        let message = HookMessage { id: format!("review_{}", approval.id), body: JsonText::from(body) };
        let timeout = Duration::from_millis(catalog.limits.reviewer_timeout_ms);
        match self.send_hook(&catalog, &hook, &message, timeout).await {
            Ok(answer) if answer.status == 200 => serde_json::from_slice(&answer.body).ok(),
            Ok(answer) => {
                tracing::warn!(org = %catalog.org.slug, status = answer.status, "a reviewer did not answer 200");
                None
            }
            Err(error) => {
                tracing::warn!(org = %catalog.org.slug, fault = error.kind.as_str(), "a reviewer could not be asked");
                None
            }
        }
    }

    /// Passes a run that no reviewer decided about to a teammate.
    pub(super) async fn pass_to_teammate(&self, run: &Run) {
        let at = self.clock().now();
        if let Err(error) = self.store().pass_to_teammate(run.intent.org_id, run.intent.id, at).await {
            // The end of the reviewer's time does it.
            tracing::warn!(run = %run.intent.id, %error, "a run was not passed to a teammate; it is tried again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reviewers_word_is_one_of_three() {
        let said = |text: &str| serde_json::from_str::<Said>(text).ok().map(|said| said.decision);
        assert_eq!(said(r#"{"decision":"approve"}"#), Some(Word::Approve));
        assert_eq!(said(r#"{"decision":"deny","reason":"no"}"#), Some(Word::Deny));
        assert_eq!(said(r#"{"decision":"escalate","more":1}"#), Some(Word::Escalate));
        for other in [r#"{"decision":"Approve"}"#, r#"{"decision":true}"#, "{}", "[]", r#""approve""#] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
