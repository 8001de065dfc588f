//! Runs that are held, and what people say about them.

use super::client::Answer;
use super::eventually;
use super::tenant::Tenant;
use serde_json::{Value, json};

impl Tenant {
    /// Runs a tool that somebody has to allow, and does not wait. Answers the run and its approval.
    #[track_caller]
    pub(crate) fn hold(&self, tool: &str, args: &Value) -> (Value, Value) {
        let request = self.run_request(&json!({ "tool": tool, "args": args }));
        let run = request.header("Prefer", "wait=0").send().expect(202).json();
        assert_eq!((&run["status"], &run["started"]), (&json!("awaiting_approval"), &json!(false)), "{run}");
        let approval = self.open_approval(&run).expect("a teammate is asked");
        (run, approval)
    }

    /// The open approval of a run, once a teammate is asked.
    #[track_caller]
    pub(crate) fn open_approval(&self, run: &Value) -> Option<Value> {
        let open = self.items("/v1/approvals?state=open&limit=200");
        open.into_iter().find(|approval| approval["correlation_id"] == run["correlation_id"])
    }

    /// The only approval there is, once a teammate is asked.
    #[track_caller]
    pub(crate) fn the_approval(&self) -> Value {
        let open = eventually("a teammate is asked", || {
            let open = self.items("/v1/approvals?state=open");
            (!open.is_empty()).then_some(open)
        });
        assert_eq!(open.len(), 1, "{open:?}");
        open[0].clone()
    }

    /// The approval as it is now.
    #[track_caller]
    pub(crate) fn approval(&self, approval: &Value) -> Value {
        self.get(&approval_path(approval)).expect(200).json()
    }

    pub(crate) fn decide(&self, approval: &Value, decision: &str) -> Answer {
        self.post(&approval_path(approval), &json!({ "decision": decision }))
    }

    /// The run, once it has this status.
    #[track_caller]
    pub(crate) fn becomes(&self, run: &Value, status: &str) -> Value {
        eventually(status, || Some(self.agent_run(run)).filter(|run| run["status"] == status))
    }

    /// Gives a run up.
    pub(crate) fn cancel(&self, run: &Value) -> Answer {
        let id = run["correlation_id"].as_str().expect("a correlation id");
        self.agent_request("DELETE", &format!("/mcp/runs/{id}")).send()
    }
}

fn approval_path(approval: &Value) -> String {
    format!("/v1/approvals/{}", approval["id"].as_str().expect("an id"))
}
