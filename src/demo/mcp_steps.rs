//! The steps of the tour about MCP: a server as an endpoint, and a client at the gateway.

use super::tour::{Call, Tour, TourFault};
use crate::adapters::transport::SimpleMethod::Post;
use crate::dialects::mcp::words::{META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_VERSION, MODERN_VERSION};
use serde_json::{Value, json};

impl Tour<'_> {
    pub(super) async fn register_mcp_server(&mut self) -> Result<(), TourFault> {
        self.step(
            "And an MCP server",
            "Dialect mcp takes the server's own URL. What an MCP server says of its tools counts only where the tenant \
             trusts it: then a tool that says it only reads is of low risk; any other has the risk the tenant gives.",
        );
        let body = json!({
            "name": "catalogue",
            "dialect": "mcp",
            "base_url": self.stage.mcp.url(),
            "auth": { "bearer": self.stage.mcp.bearer() },
            "trusted": true,
        });
        let answer = self.show(self.workspace_call("/v1/endpoints", Some(body))).await?;
        self.expect_status(&answer, 201, "the endpoint is registered");
        self.expect(answer.text("/state") == "connected", "its first sync was good: it is connected");
        self.expect(answer.body["tool_count"] == 2, "it brought 2 tools");
        let speaks_modern = answer.text("/protocol_version") == MODERN_VERSION;
        self.expect(speaks_modern, "it is spoken with in the present revision of the protocol");
        Ok(())
    }

    pub(super) async fn call_as_mcp_client(&mut self) -> Result<(), TourFault> {
        self.step(
            "An MCP client uses the same tools",
            "The gateway is an MCP server itself: Claude, an SDK or the Inspector connect to /mcp with the agent key in \
             a header, and see every tool of every endpoint. This is what a client sends.",
        );
        let call = self.mcp_call("tools/list", None, json!({}));
        let listed = self.show_as(call, names_of_tools).await?;
        self.expect_status(&listed, 200, "the tools are listed");
        let names: Vec<&str> = listed.body["result"]["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        let all = ["orderStatus", "order_get", "sales-report", "search_products"];
        let is_there = all.iter().all(|name| names.contains(name));
        self.expect(is_there, "tools of all four endpoints are there, under names that every client takes");
        let params = json!({ "name": "search_products", "arguments": { "words": "teapot" } });
        let call = self.mcp_call("tools/call", Some("search_products"), params);
        let answer = self.show(call).await?;
        self.expect_status(&answer, 200, "the call has its result");
        let found = &answer.body["result"]["structuredContent"]["products"][0]["name"];
        self.expect(found == "Blue teapot", "it is what the MCP server answered");
        let requests = self.stage.mcp.requests();
        let last = requests.iter().rfind(|request| request.json()["method"] == "tools/call");
        let is_clean = last.is_some_and(|request| !format!("{request:?}").contains("tg_ag_"));
        self.expect(is_clean, "the server received it with its own token; the agent's key stayed here");
        Ok(())
    }

    /// A request of a client that speaks the present revision.
    fn mcp_call(&self, method: &str, name: Option<&str>, mut params: Value) -> Call {
        params["_meta"] = json!({
            META_VERSION: MODERN_VERSION,
            META_CLIENT_INFO: { "name": "curl", "version": "8" },
            META_CLIENT_CAPABILITIES: {},
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let call = self
            .call(Post, "/mcp", &self.keys.agent, Some(body))
            .header("Accept", "application/json, text/event-stream")
            .header("MCP-Protocol-Version", MODERN_VERSION)
            .header("Mcp-Method", method);
        match name {
            Some(name) => call.header("Mcp-Name", name),
            None => call,
        }
    }
}

/// A list of tools by their names: their schemas would fill the page.
fn names_of_tools(answer: &Value) -> Value {
    let mut shown = answer.clone();
    if let Some(tools) = shown.pointer_mut("/result/tools").and_then(Value::as_array_mut) {
        for tool in tools {
            *tool = json!({ "name": tool["name"], "…": "…" });
        }
    }
    shown
}
