//! The steps of the tour about calls that change something: evidence and receipts, keys, confirmation, and approval.

use super::tour::{Answer, Tour, TourFault};
use crate::adapters::transport::SimpleMethod::{Get, Post};
use serde_json::{Value, json};

impl Tour<'_> {
    pub(super) async fn register_agent_provider(&mut self) -> Result<(), TourFault> {
        self.step(
            "And a third one, that proves what it says and does",
            "Dialect agent-provider answers with evidence, and keeps a receipt of everything it changes. It is shown a \
             bearer token.",
        );
        let body = json!({
            "name": "orders",
            "dialect": "agent-provider",
            "base_url": self.stage.orders.url(),
            "auth": { "bearer": self.stage.orders.bearer() },
        });
        let answer = self.show(self.workspace_call("/v1/endpoints", Some(body))).await?;
        self.expect_status(&answer, 201, "the endpoint is registered");
        self.expect(answer.text("/state") == "connected", "its first sync was good: it is connected");
        self.expect(answer.body["tool_count"] == 4, "it brought 4 tools: two reads, two mutations");
        Ok(())
    }

    pub(super) async fn read_evidence(&mut self) -> Result<(), TourFault> {
        self.step(
            "The agent reads, and gets evidence",
            "facts are sentences made from the provider's evidence alone. Its free text is handed on as what it is: \
             not verified, with every number in it that no evidence supports.",
        );
        let body = json!({ "tool": "order.get", "args": { "order": "ORD-1042" }, "context": { "locale": "en-GB" } });
        let answer = self.show_as(self.run(body), without_most_evidence).await?;
        self.expect(answer.text("/status") == "completed", "its status is completed");
        let facts = answer.body["result"]["facts"].as_array().map_or(0, Vec::len);
        self.expect(facts > 0, "there are facts to tell the user");
        let unsupported = answer.body["result"]["text"]["unsupported"] == json!(["14"]);
        self.expect(unsupported, "the 14 days of the text are marked: they are in no evidence");
        Ok(())
    }

    pub(super) async fn mutate_with_receipt(&mut self) -> Result<(), TourFault> {
        self.step(
            "The agent changes something, and gets a receipt",
            "Before the first byte leaves, the gateway records the mutation as an operation. The provider's action \
             evidence names that operation: a bare \"done\" would not count.",
        );
        let body = json!({ "tool": "refund.issue", "args": { "order": "ORD-1042", "amount": "12.50" } });
        let call = self.run(body).header("X-Caller-Identity", "web:ann");
        let answer = self.show_as(call, without_most_evidence).await?;
        self.expect(answer.text("/status") == "completed", "its status is completed");
        let action = evidence_of(&answer, "action");
        self.expect(action["outcome"] == "applied", "the action was applied");
        let operation = self.operation_of(&answer).await?;
        let is_it = operation.body["id"] == action["operation_id"] && operation.text("/state") == "applied";
        self.expect(is_it, "it is the operation that the tenant sees, and it is applied");
        Ok(())
    }

    pub(super) async fn lose_answer(&mut self) -> Result<(), TourFault> {
        self.step(
            "An answer that is lost is found again",
            "The provider cancels the order, and the connection breaks before it has said so. Nothing is sent twice: \
             the gateway asks for the receipt of its operation, while the agent waits.",
        );
        let url = format!("{}/demo/lose-next-answer", self.stage.orders.url());
        self.show(Self::outside_call(Post, url, json!({}))).await?;
        let body = json!({ "tool": "order.cancel", "args": { "order": "ORD-1043" } });
        let answer = self.show(self.run(body).header("Prefer", "wait=30")).await?;
        self.expect(answer.text("/status") == "completed", "its status is completed, by the receipt");
        let operation = self.operation_of(&answer).await?;
        self.expect(operation.text("/receipt/state") == "applied", "the tenant's record keeps the receipt");
        self.expect(operation.body["attempts"] == 1, "it was sent once");
        let effects = self.stage.orders.effects(operation.text("/id"));
        self.expect(effects == 1, "and had one effect");
        Ok(())
    }

    pub(super) async fn repeat_under_key(&mut self) -> Result<(), TourFault> {
        self.step(
            "A call with an Idempotency-Key happens once",
            "An agent that is not sure whether its call arrived repeats it under the same key, and is answered the \
             same run.",
        );
        let before = self.stage.orders.effects_total();
        let refund = |tour: &Self, amount: &str| {
            let body = json!({ "tool": "refund.issue", "args": { "order": "ORD-1044", "amount": amount } });
            tour.run(body).header("Idempotency-Key", "refund-of-ORD-1044")
        };
        let first = self.show_as(refund(self, "20.00"), without_most_evidence).await?;
        self.expect(first.text("/status") == "completed", "its status is completed");
        self.page.prose("The same again:");
        let again = self.show_as(refund(self, "20.00"), without_most_evidence).await?;
        let is_same =
            !first.text("/correlation_id").is_empty() && again.text("/correlation_id") == first.text("/correlation_id");
        self.expect(is_same, "it is the same run, by its correlation_id");
        self.expect(again.header("idempotent-replay") == Some("true"), "Idempotent-Replay says so");
        self.page.prose("Another amount under this key is another call:");
        let other = self.show(refund(self, "25.00")).await?;
        self.expect_status(&other, 409, "it is refused");
        self.expect(other.text("/code") == "operation_conflict", "the code is operation_conflict");
        let effects = self.stage.orders.effects_total() - before;
        self.expect(effects == 1, "one refund was made");
        Ok(())
    }

    /// Answers the `correlation_id` of the run that is held then.
    pub(super) async fn confirm_and_hold(&mut self) -> Result<String, TourFault> {
        self.step(
            "A tool with consequences waits for people",
            "This refund has the risk reviewed: first the end user has to confirm exactly this call, then somebody of \
             the organization has to approve it. Until then the provider hears nothing.",
        );
        let before = self.stage.median.requests().len();
        let mut body = json!({ "tool": "refundOrder", "args": { "orderNumber": "ORD-1042" } });
        let asked = self.show(self.run(body.clone())).await?;
        self.expect(asked.text("/status") == "confirmation_required", "the gateway asks for a confirmation first");
        self.page.prose("The agent shows the summary to its user, and repeats the call with the token of their yes:");
        body["confirmation"] = json!(asked.need("/confirmation/token", "confirmation token")?);
        let held = self.show(self.run(body).header("Prefer", "wait=0")).await?;
        self.expect_status(&held, 202, "the call is held");
        self.expect(held.text("/status") == "awaiting_approval", "its status is awaiting_approval");
        let untouched = self.stage.median.requests().len() == before;
        self.expect(untouched, "the provider received nothing");
        held.need("/correlation_id", "correlation_id")
    }

    pub(super) async fn decide(&mut self, held: &str) -> Result<(), TourFault> {
        self.step(
            "A teammate decides",
            "What waits is listed with its tool, arguments and caller. One approval is one execution; everything is \
             checked again when it is given.",
        );
        let key = self.keys.workspace.clone();
        let list = self.show(self.call(Get, "/v1/approvals?state=open", &key, None)).await?;
        let listed = list.body["items"].as_array().into_iter().flatten();
        let is_listed = listed.filter(|approval| approval["correlation_id"] == held).count() == 1;
        self.expect(is_listed, "the held call is listed");
        let approved = self.decide_first(&list, "approve").await?;
        self.expect(approved.text("/state") == "approved", "it is approved");
        let (path, key) = (format!("/mcp/runs/{held}"), self.keys.agent.clone());
        let ended = self.show(self.call(Get, &path, &key, None).header("Prefer", "wait=20")).await?;
        self.expect(ended.text("/status") == "completed", "the agent's run goes on by itself, and is completed");
        let requests = self.stage.median.requests();
        let marks = requests.iter().filter(|request| request.json()["context"]["approval"]["kind"] == "teammate");
        self.expect(marks.count() == 1, "the provider received it once, and was told that a teammate had approved it");
        self.page.prose("A call of risk high needs no confirmation, and waits at once. This one is denied:");
        let body = json!({ "tool": "closeAccount", "args": { "customer": "amira" } });
        let run = self.show(self.run(body).header("Prefer", "wait=0")).await?;
        self.expect(run.text("/status") == "awaiting_approval", "its status is awaiting_approval");
        let list = self.make(&self.call(Get, "/v1/approvals?state=open", &self.keys.workspace, None)).await?;
        let denied = self.decide_first(&list, "deny").await?;
        self.expect(denied.text("/state") == "denied", "it is denied");
        let path = format!("/mcp/runs/{}", run.need("/correlation_id", "correlation_id")?);
        let run = self.make(&self.call(Get, &path, &self.keys.agent, None)).await?;
        self.expect(run.text("/status") == "denied", "so is its run; nothing was sent");
        Ok(())
    }

    /// Decides about the newest approval of a list.
    async fn decide_first(&mut self, list: &Answer, decision: &str) -> Result<Answer, TourFault> {
        let path = format!("/v1/approvals/{}", list.need("/items/0/id", "approval")?);
        self.show(self.workspace_call(&path, Some(json!({ "decision": decision })))).await
    }

    /// The tenant's record of the operation of a run.
    async fn operation_of(&mut self, run: &Answer) -> Result<Answer, TourFault> {
        let id = evidence_of(run, "action")["operation_id"].as_str().unwrap_or_default().to_owned();
        let (path, key) = (format!("/v1/operations/{id}"), self.keys.workspace.clone());
        self.show(self.call(Get, &path, &key, None)).await
    }
}

/// The evidence of this kind in the result of a run; `null` when there is none.
fn evidence_of(run: &Answer, kind: &str) -> Value {
    let evidence = run.body["result"]["evidence"].as_array().into_iter().flatten();
    evidence.into_iter().find(|item| item["kind"] == kind).cloned().unwrap_or_default()
}

/// A run with the first and the last item of its evidence.
fn without_most_evidence(run: &Value) -> Value {
    let mut shown = run.clone();
    if let Some(evidence) = shown.pointer_mut("/result/evidence").and_then(Value::as_array_mut)
        && let [first, .., last] = evidence.as_slice()
    {
        let others = json!(format!("… and {} more", evidence.len() - 2));
        *evidence = vec![first.clone(), others, last.clone()];
    }
    shown
}
