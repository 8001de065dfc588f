//! A provider with receipts, on a thread of its own, for as long as a test holds it.

use super::provider::{Provider, Reply};
use serde_json::{Value, json};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use toolgate::demo::agent_provider::{AgentProvider, AgentProviderOptions};
use toolgate::demo::shop::ProviderTool;

pub(crate) struct ReceiptProvider {
    provider: Arc<AgentProvider>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl std::ops::Deref for ReceiptProvider {
    type Target = AgentProvider;

    fn deref(&self) -> &AgentProvider {
        &self.provider
    }
}

impl ReceiptProvider {
    pub(crate) fn start(options: AgentProviderOptions) -> Self {
        let (started, provider) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            actix::System::new().block_on(async move {
                let provider = Arc::new(AgentProvider::start(options).expect("a free port"));
                started.send(Arc::clone(&provider)).expect("the test waits");
                let _ = stopped.await;
                provider.stop().await;
            });
        });
        Self { provider: provider.recv().expect("it starts"), stop: Some(stop), thread: Some(thread) }
    }

    /// With these tools.
    pub(crate) fn of(tools: Vec<ProviderTool>) -> Self {
        Self::start(AgentProviderOptions { tools, ..AgentProviderOptions::default() })
    }

    /// What registers it.
    pub(crate) fn registration(&self, name: &str) -> Value {
        json!({
            "name": name, "dialect": "agent-provider", "base_url": self.url(), "auth": { "bearer": self.bearer() },
        })
    }
}

impl Drop for ReceiptProvider {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A mutation that does what it is asked, whatever that is, and has so long for it.
pub(crate) fn mutation(name: &str, timeout: Duration) -> ProviderTool {
    let declaration = json!({
        "name": name,
        "description": "Carries out one wish.",
        "mutating": true,
        "produces_evidence": ["action"],
        "action": name,
        "timeout_ms": u64::try_from(timeout.as_millis()).expect("short"),
        "parameters": {
            "type": "object",
            "properties": { "wish": { "type": "string" } },
            "required": ["wish"],
            "additionalProperties": false,
        },
    });
    ProviderTool::new(declaration, |_| Ok(json!({ "evidence": [] })))
}

/// The token a [`scripted`] provider is registered with.
pub(crate) const BEARER: &str = "provider-token-52c1";

/// A provider of these tools whose every answer is scripted. Discovery and receipts are answered alike: whatever
/// [`Provider::manifest`] was last told.
pub(crate) fn scripted(tools: &[Value]) -> Provider {
    let provider = Provider::median(&[]);
    let manifest = json!({
        "protocol_version": "1", "contract_version": "2026-09-01", "capabilities": ["read", "mutate"],
        "languages": ["de", "en"], "receipt_retention_seconds": 604_800, "tools": tools,
    });
    provider.manifest(Reply::json(200, &manifest));
    provider
}

/// What registers a [`scripted`] provider.
pub(crate) fn scripted_registration(provider: &Provider) -> Value {
    json!({ "name": "scripted", "dialect": "agent-provider", "base_url": provider.url(), "auth": { "bearer": BEARER } })
}

/// A tool that only looks.
pub(crate) fn read(name: &str) -> Value {
    json!({
        "name": name, "mutating": false, "produces_evidence": ["entity"], "timeout_ms": 5000,
        "parameters": {
            "type": "object", "properties": { "order": { "type": "string" } }, "additionalProperties": false,
        },
    })
}

/// A good answer to a call of a [`read`].
pub(crate) fn found(order: &str) -> Reply {
    let entity = json!({ "kind": "entity", "id": "e", "type": "order", "key": order });
    Reply::json(200, &json!({ "contract_version": "2026-09-01", "status": "ok", "evidence": [entity] }))
}
