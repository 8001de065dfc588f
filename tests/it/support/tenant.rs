//! One organization, with its keys at hand.

use super::client::{Answer, Client, Request};
use super::gate::Gate;
use super::node::Node;
use super::provider::Provider;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) org_id: String,
    pub(crate) workspace: String,
    pub(crate) agent: String,
}

/// A registered endpoint as its registration answered.
pub(crate) struct Registered {
    pub(crate) id: String,
    pub(crate) body: Value,
}

impl Registered {
    #[track_caller]
    pub(crate) fn assert_connected(self) -> Self {
        assert_eq!(self.body["state"], "connected", "{}", self.body);
        self
    }

    /// The response node of this endpoint.
    pub(crate) fn node(&self, gate: &Gate) -> Node {
        let secret = self.body["callback"]["secret"].as_str().expect("a secret at registration");
        Node::new(gate.client().clone(), &format!("/callbacks/{}", self.id), secret, Arc::clone(gate.clock()))
    }
}

impl Tenant {
    /// The same organization behind a gateway that was started anew.
    pub(crate) fn at(&self, gate: &Gate) -> Self {
        Self { client: gate.client().clone(), ..self.clone() }
    }

    /// The same organization seen by another agent key.
    pub(crate) fn as_agent(&self, key: &str) -> Self {
        Self { agent: key.to_owned(), ..self.clone() }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        self.client.request(method, path).key(&self.workspace)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path).send()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path).json(body).send()
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.request("PATCH", path).json(body).send()
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.request("DELETE", path).send()
    }

    /// Mints an agent key.
    #[track_caller]
    pub(crate) fn agent_key(&self, body: &Value) -> String {
        let made = self.post("/v1/agent-keys", body).expect(201).json();
        made["key"].as_str().expect("the key is shown once").to_owned()
    }

    /// Registers an endpoint of this provider under this name, with further members of the request.
    #[track_caller]
    pub(crate) fn register(&self, name: &str, provider: &Provider, extra: &Value) -> Registered {
        let mut body = provider.registration(name);
        for (member, value) in extra.as_object().expect("an object") {
            body[member] = value.clone();
        }
        let body = self.post("/v1/endpoints", &body).expect(201).json();
        Registered { id: body["id"].as_str().expect("an id").to_owned(), body }
    }

    #[track_caller]
    pub(crate) fn endpoint(&self, name: &str, provider: &Provider) -> Registered {
        self.register(name, provider, &json!({})).assert_connected()
    }

    /// An explicit sync.
    #[track_caller]
    pub(crate) fn sync(&self, endpoint: &Registered) -> Value {
        self.request("POST", &format!("/v1/endpoints/{}/sync", endpoint.id)).send().expect(200).json()
    }

    #[track_caller]
    pub(crate) fn show(&self, endpoint: &Registered) -> Value {
        self.get(&format!("/v1/endpoints/{}", endpoint.id)).expect(200).json()
    }

    /// The items of the first page of a list.
    #[track_caller]
    pub(crate) fn items(&self, path: &str) -> Vec<Value> {
        let page = self.get(path).expect(200).json();
        page["items"].as_array().expect("items").clone()
    }

    /// A request of the agent.
    pub(crate) fn agent_request(&self, method: &str, path: &str) -> Request {
        self.client.request(method, path).key(&self.agent)
    }

    pub(crate) fn run_request(&self, body: &Value) -> Request {
        self.agent_request("POST", "/mcp/run").json(body)
    }

    pub(crate) fn run(&self, body: &Value) -> Answer {
        self.run_request(body).send()
    }

    /// Runs a tool that a person is asked about, and does not wait for that person.
    #[track_caller]
    pub(crate) fn call_held(&self, tool: &str, args: &Value) -> Value {
        let request = self.run_request(&json!({ "tool": tool, "args": args }));
        request.header("Prefer", "wait=0").send().expect(202).json()
    }

    /// Runs a tool with these arguments and answers the run, whatever became of it.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, args: &Value) -> Value {
        let answer = self.run(&json!({ "tool": tool, "args": args }));
        assert!(matches!(answer.status, 200 | 202), "{} {}", answer.status, answer.text());
        answer.json()
    }

    /// The run as its agent sees it now.
    #[track_caller]
    pub(crate) fn agent_run(&self, run: &Value) -> Value {
        let id = run["correlation_id"].as_str().expect("a correlation id");
        let answer = self.agent_request("GET", &format!("/mcp/runs/{id}")).send();
        let seen = answer.json();
        let open = matches!(seen["status"].as_str(), Some("pending" | "started" | "awaiting_approval"));
        assert_eq!(answer.status, if open { 202 } else { 200 }, "{seen}");
        seen
    }

    #[track_caller]
    pub(crate) fn tenant_run(&self, run: &Value) -> Value {
        let id = run["correlation_id"].as_str().expect("a correlation id");
        self.get(&format!("/v1/runs/{id}")).expect(200).json()
    }

    /// The manifest the agent sees.
    #[track_caller]
    pub(crate) fn manifest(&self) -> Vec<Value> {
        let answer = self.agent_request("GET", "/mcp/manifest.json").send().expect(200);
        answer.json().as_array().expect("an array").clone()
    }

    /// Ids of the tools the agent sees.
    #[track_caller]
    pub(crate) fn listed(&self) -> Vec<String> {
        self.manifest().iter().map(|tool| tool["id"].as_str().expect("an id").to_owned()).collect()
    }
}
