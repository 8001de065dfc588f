//! The steps of the guided tour: what an operator, a tenant and an agent do, one after the other.

use super::tour::{Call, Tour, TourFault};
use crate::adapters::transport::SimpleMethod::{Get, Post};
use crate::domain::secret::Secret;
use serde_json::{Value, json};
use std::time::Duration;

/// Calls after which a limit of one a second must have been met.
const MANY_CALLS: usize = 50;

/// How often, and with which pause between, the provider is asked whether its callback was taken.
const DELIVERY_LOOKS: usize = 250;
const DELIVERY_LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Tour<'_> {
    /// All steps, in order.
    pub(super) async fn walk_steps(&mut self) -> Result<(), TourFault> {
        self.register_organization().await?;
        self.register_topology().await?;
        self.register_median().await?;
        self.register_agent_provider().await?;
        self.register_mcp_server().await?;
        self.sync().await?;
        self.make_agent_key().await?;
        self.list_tools().await?;
        self.run_command().await?;
        self.run_query().await?;
        self.run_median_tool().await?;
        self.call_as_mcp_client().await?;
        self.coerce_argument().await?;
        self.refuse_argument().await?;
        self.read_evidence().await?;
        self.mutate_with_receipt().await?;
        self.lose_answer().await?;
        self.repeat_under_key().await?;
        let held = self.confirm_and_hold().await?;
        self.decide(&held).await?;
        self.break_manifest().await?;
        self.meet_rate_limit().await
    }

    async fn register_organization(&mut self) -> Result<(), TourFault> {
        self.step(
            "The operator registers an organization",
            "Whoever hosts the gateway gives each tenant a space of its own. The answer holds the tenant's workspace \
             key; like every key it is shown once.",
        );
        let body = json!({ "slug": "acme", "name": "Acme web shop" });
        let token = self.stage.operator_token.clone();
        let call = self.call(Post, "/admin/v1/orgs", &token, Some(body));
        let answer = self.show_as(call, without_most_limits).await?;
        self.expect_status(&answer, 201, "the organization exists");
        self.keys.workspace = answer.need("/workspace_key", "workspace key")?;
        let is_workspace_key = self.keys.workspace.starts_with("tg_ws_");
        self.expect(is_workspace_key, "its workspace key begins with tg_ws_");
        Ok(())
    }

    async fn register_topology(&mut self) -> Result<(), TourFault> {
        self.step(
            "The tenant registers its first endpoint",
            "An endpoint is a provider of tools. This one speaks dialect topology: the gateway fetches its manifest \
             at once and shows it the secret given here. The answer tells where late results are delivered, and the \
             secret they are signed with.",
        );
        let body = json!({
            "name": "automations",
            "dialect": "topology",
            "base_url": self.stage.topology.url(),
            "auth": { "header": "X-Auth", "value": self.stage.topology.auth_value() },
        });
        let answer = self.show(self.workspace_call("/v1/endpoints", Some(body))).await?;
        self.expect_status(&answer, 201, "the endpoint is registered");
        self.topology_id = answer.need("/id", "id")?;
        let secret = answer.need("/callback/secret", "callback secret")?;
        self.stage.topology.set_callback_secret(Secret::new(secret));
        self.expect(answer.text("/state") == "connected", "its first sync was good: it is connected");
        self.expect(answer.body["tool_count"] == 2, "it brought 2 tools");
        self.page.prose("(The provider's response node has been given the callback secret.)");
        Ok(())
    }

    async fn register_median(&mut self) -> Result<(), TourFault> {
        self.step(
            "And a second one, of another dialect",
            "Dialect median has one address and signs every request with a shared secret instead of showing it.",
        );
        let body = json!({
            "name": "service",
            "dialect": "median",
            "base_url": self.stage.median.url(),
            "auth": { "signing_secret": self.stage.median.signing_secret() },
        });
        let answer = self.show(self.workspace_call("/v1/endpoints", Some(body))).await?;
        self.expect_status(&answer, 201, "the endpoint is registered");
        self.expect(answer.text("/state") == "connected", "its first sync was good: it is connected");
        self.expect(answer.body["tool_count"] == 4, "it brought 4 tools, one of each risk");
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), TourFault> {
        self.step(
            "The tenant syncs on demand",
            "Manifests are fetched again by the clock, when a conversation begins, and whenever the tenant says so.",
        );
        let answer = self.show(self.sync_call()).await?;
        self.expect_status(&answer, 200, "the sync was made");
        self.expect(answer.text("/outcome") == "unchanged", "nothing has changed since");
        Ok(())
    }

    async fn make_agent_key(&mut self) -> Result<(), TourFault> {
        self.step(
            "The tenant makes a key for its agent",
            "An agent key opens the tools its groups allow and nothing else. The group default allows everything.",
        );
        let body = json!({ "name": "shop assistant", "groups": ["default"] });
        let answer = self.show(self.workspace_call("/v1/agent-keys", Some(body))).await?;
        self.expect_status(&answer, 201, "the key is made");
        self.keys.agent = answer.need("/key", "agent key")?;
        Ok(())
    }

    async fn list_tools(&mut self) -> Result<(), TourFault> {
        self.step(
            "The agent lists its tools",
            "One list, whatever the provider and its protocol. What is listed is exactly what can be called.",
        );
        let key = self.keys.agent.clone();
        let call = self.call(Get, "/mcp/manifest.json", &key, None);
        let answer = self.show(call).await?;
        self.expect_status(&answer, 200, "the list is here");
        let mut ids: Vec<&str> =
            answer.body.as_array().into_iter().flatten().filter_map(|tool| tool["id"].as_str()).collect();
        ids.sort_unstable();
        let expected = [
            "mcp:reserve_product",
            "mcp:search_products",
            "median:addNote",
            "median:closeAccount",
            "median:orderStatus",
            "median:refundOrder",
            "provider:order.cancel",
            "provider:order.get",
            "provider:orders.search",
            "provider:refund.issue",
            "topology:sales-report",
            "topology:send-newsletter",
        ];
        self.expect(ids == expected, "it holds the 12 tools of all four endpoints");
        let etag = answer.header("etag").unwrap_or_default().to_owned();
        let again = self.call(Get, "/mcp/manifest.json", &key, None).header("If-None-Match", etag);
        let unchanged = self.make(&again).await?;
        self.expect_status(&unchanged, 304, "asked again with If-None-Match, it is not sent a second time");
        Ok(())
    }

    async fn run_command(&mut self) -> Result<(), TourFault> {
        self.step(
            "The agent runs a command",
            "A command is fire-and-forget: the provider is told, and that is all there is to wait for.",
        );
        let body = json!({ "tool": "topology:send-newsletter", "args": { "audience": "regulars" } });
        let answer = self.show(self.run(body)).await?;
        self.expect_status(&answer, 202, "the command was taken");
        self.expect(answer.text("/status") == "started", "its status is started");
        let requests = self.stage.topology.requests();
        let last = requests.iter().rfind(|request| request.path == "/mcp/run");
        let arrived = last.is_some_and(|request| request.json()["args"]["audience"] == "regulars");
        self.expect(arrived, "the provider received it with its own secret");
        let leaked = last.is_none_or(|request| format!("{request:?}").contains("tg_ag_"));
        self.expect(!leaked, "the agent's key stayed here");
        Ok(())
    }

    async fn run_query(&mut self) -> Result<(), TourFault> {
        self.step(
            "The agent runs a query and gets its late answer",
            "The provider only acknowledges a query; its response node delivers the result later, in a signed \
             callback. An agent that says Prefer: wait gets it in the same call; others ask /mcp/runs/{id}.",
        );
        let body = json!({ "tool": "topology:sales-report", "args": { "days": 30 } });
        let answer = self.show(self.run(body).header("Prefer", "wait=20")).await?;
        self.expect_status(&answer, 200, "the run has ended");
        self.expect(answer.text("/status") == "completed", "its status is completed");
        self.expect(answer.body["result"]["orders"] == 360, "the result is the provider's: 360 orders in 30 days");
        let taken = self.callback_is_taken().await;
        self.expect(taken, "the gateway took the callback with 202 Accepted");
        Ok(())
    }

    /// The agent may have its result before the response node has its 202.
    async fn callback_is_taken(&self) -> bool {
        for _ in 0..DELIVERY_LOOKS {
            if self.stage.topology.deliveries().iter().any(|delivery| delivery.status == Some(202)) {
                return true;
            }
            tokio::time::sleep(DELIVERY_LOOK_PAUSE).await;
        }
        false
    }

    async fn run_median_tool(&mut self) -> Result<(), TourFault> {
        self.step(
            "The agent runs a tool that answers at once",
            "A tool can be called by its bare name: names are unique in the organization. Who is behind the agent \
             goes in X-Caller-Identity, and on to the provider.",
        );
        let body = json!({ "tool": "orderStatus", "args": { "orderNumber": "ORD-1042" } });
        let answer = self.show(self.run(body).header("X-Caller-Identity", "customer-7")).await?;
        self.expect_status(&answer, 200, "the run has ended");
        self.expect(answer.body["result"]["status"] == "shipped", "the order has been shipped");
        let requests = self.stage.median.requests();
        let caller = requests.iter().rfind(|request| request.json()["op"] == "call");
        let is_named = caller.is_some_and(|request| request.json()["context"]["customer"]["id"] == "customer-7");
        self.expect(is_named, "the provider was told who asked, under a signature it verified");
        Ok(())
    }

    async fn coerce_argument(&mut self) -> Result<(), TourFault> {
        self.step(
            "An argument of the wrong type is mended, where nothing is lost",
            "Models like to write numbers as text. \"7\" can only mean 7, so the provider receives 7. The record \
             keeps both.",
        );
        let body = json!({ "tool": "sales-report", "args": { "days": "7" } });
        let answer = self.show(self.run(body).header("Prefer", "wait=20")).await?;
        self.expect_status(&answer, 200, "the run has ended");
        self.expect(answer.body["result"]["days"] == 7, "the provider computed with the number 7");
        let id = answer.need("/correlation_id", "correlation_id")?;
        let path = format!("/v1/runs/{id}");
        let key = self.keys.workspace.clone();
        let record = self.show_as(
            self.call(Get, &path, &key, None),
            |run| json!({ "correlation_id": run["correlation_id"], "arguments": run["arguments"], "…": "…" }),
        );
        let record = record.await?;
        let arguments = &record.body["arguments"];
        self.expect(arguments["sent"] == json!({ "days": "7" }), "the tenant's record shows what the agent sent");
        self.expect(arguments["coerced"] == json!({ "days": 7 }), "and what the provider received");
        Ok(())
    }

    async fn refuse_argument(&mut self) -> Result<(), TourFault> {
        self.step(
            "An argument that is really wrong never reaches the provider",
            "It is refused with a sentence for each field, so that a model can mend its call.",
        );
        let before = self.stage.topology.requests().len();
        let body = json!({ "tool": "sales-report", "args": { "days": "a week", "currency": "EUR" } });
        let answer = self.show(self.run(body)).await?;
        self.expect_status(&answer, 422, "the call is refused");
        self.expect(answer.text("/code") == "invalid_arguments", "the code is invalid_arguments");
        let errors = answer.body["errors"].as_array().map_or(0, Vec::len);
        self.expect(errors == 2, "both mistakes are named");
        let untouched = self.stage.topology.requests().len() == before;
        self.expect(untouched, "the provider received nothing");
        Ok(())
    }

    async fn break_manifest(&mut self) -> Result<(), TourFault> {
        self.step(
            "A broken manifest takes nothing away",
            "The provider's next release declares a type that JSON Schema does not have. The sync fails and says why; \
             the last good tools stay, and go on working.",
        );
        let switch = |tour: &Self, mode: &str| {
            let url = format!("{}/demo/manifest", tour.stage.topology.url());
            Tour::outside_call(Post, url, json!({ "manifest": mode }))
        };
        self.show(switch(self, "broken")).await?;
        let failed = self.show(self.sync_call()).await?;
        self.expect(failed.text("/outcome") == "failed", "the sync fails");
        self.expect(failed.text("/reason/code") == "bad_schema", "the reason is bad_schema, and names the tool");
        let body = json!({ "tool": "sales-report", "args": { "days": 1 } });
        let answer = self.show(self.run(body).header("Prefer", "wait=20")).await?;
        self.expect(answer.text("/status") == "completed", "the same tool still runs, by its last good declaration");
        self.page.prose("The next release is good again:");
        self.show(switch(self, "good")).await?;
        let mended = self.show(self.sync_call()).await?;
        let outcome = mended.text("/outcome");
        self.expect(matches!(outcome, "applied" | "unchanged"), "the sync is good again");
        Ok(())
    }

    async fn meet_rate_limit(&mut self) -> Result<(), TourFault> {
        self.step(
            "Too many calls are refused, cheaply and politely",
            "Limits are nested: organization, agent key, tool, caller. This key may call once a second.",
        );
        let limits = json!({ "agent_key_per_second": 1, "agent_key_per_second_burst": 1 });
        let body = json!({ "name": "slow assistant", "groups": ["default"], "limits": limits });
        let made = self.show(self.workspace_call("/v1/agent-keys", Some(body))).await?;
        let key = made.need("/key", "agent key")?;
        let body = json!({ "tool": "orderStatus", "args": { "orderNumber": "ORD-1042" } });
        let call = self.call(Post, "/mcp/run", &key, Some(body));
        let first = self.make(&call).await?;
        self.expect_status(&first, 200, "the first call passes");
        self.page.prose("The same again at once (to repeat it, send it twice within a second):");
        self.show_call(&call);
        let mut refused = self.make(&call).await?;
        // On a slow machine a second may pass between two calls; then one more is allowed, and it goes on.
        for _ in 0..MANY_CALLS {
            if refused.status == 429 {
                break;
            }
            refused = self.make(&call).await?;
        }
        self.show_answer(&refused, Value::clone);
        self.expect_status(&refused, 429, "it is refused");
        self.expect(refused.text("/limit") == "agent_key", "the answer names the limit");
        let seconds = refused.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        self.expect(seconds.is_some_and(|seconds| seconds >= 1), "Retry-After tells when to try again");
        Ok(())
    }

    /// A run with the agent's key.
    pub(super) fn run(&self, body: Value) -> Call {
        self.call(Post, "/mcp/run", &self.keys.agent, Some(body))
    }

    pub(super) fn workspace_call(&self, path: &str, body: Option<Value>) -> Call {
        self.call(Post, path, &self.keys.workspace, body)
    }

    fn sync_call(&self) -> Call {
        self.workspace_call(&format!("/v1/endpoints/{}/sync", self.topology_id), None)
    }
}

/// An organization with one of its limits: sixteen would fill the page.
fn without_most_limits(answer: &Value) -> Value {
    let mut shown = answer.clone();
    if let Some(limits) = shown.pointer_mut("/org/limits").and_then(Value::as_object_mut) {
        let others = limits.len().saturating_sub(1);
        limits.retain(|name, _| name == "organization_per_second");
        limits.insert("…".to_owned(), json!(format!("and {others} more")));
    }
    shown
}
