//! Golden fixtures of the dialects: what each makes of a manifest and an answer, and the bytes of what it sends.
//!
//! A fixture says why it is there; its file name or that sentence names the public thread it comes from.

#[path = "dialects/agent_provider.rs"]
mod agent_provider;
#[path = "dialects/answers.rs"]
mod answers;
#[path = "dialects/any_bytes.rs"]
mod any_bytes;
#[path = "dialects/calls.rs"]
mod calls;
#[path = "dialects/manifests.rs"]
mod manifests;
#[path = "dialects/mcp.rs"]
mod mcp;

use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toolgate::dialects::AnswerContext;
use toolgate::domain::endpoint::{Endpoint, EndpointAuth, EndpointSettings, SyncPolicy, SyncState, ToolChanges};
use toolgate::domain::evidence::EvidenceKind;
use toolgate::domain::ids::{EndpointId, OrgId, RunId};
use toolgate::domain::json::JsonText;
use toolgate::domain::operation::{OperationIntent, OperationMark};
use toolgate::domain::risk::Risk;
use toolgate::domain::secret::Secret;
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::{Dialect, ProviderTerms, ToolKind, ToolSpec};

const RUN_ID: &str = "0198a000-0000-7000-8000-000000000001";
const OPERATION_ID: &str = "0198a000-0000-7000-8000-000000000009";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLBACK_URL: &str = "https://gate.example/callbacks/0198a000-0000-7000-8000-0000000000ff";

fn folder(dialect: Dialect, kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(dialect.as_str()).join(kind)
}

/// Every fixture of a folder, by file name. An empty folder is a mistake of the test.
fn fixtures<T: for<'de> Deserialize<'de>>(dialect: Dialect, kind: &str) -> Vec<(String, T)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder(dialect, kind))
        .expect("a folder of fixtures")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no fixtures of {} {kind}", dialect.as_str());
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a readable fixture");
            let fixture = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.display().to_string(), fixture)
        })
        .collect()
}

/// What is expected where toolgate names itself.
fn with_our_version(text: &str) -> String {
    text.replace("$VERSION", env!("CARGO_PKG_VERSION"))
}

fn settings(dialect: Dialect) -> EndpointSettings {
    let (base_url, auth) = match dialect {
        Dialect::Topology => (
            "https://pulse.example/base",
            EndpointAuth::Header { name: "X-Auth".to_owned(), value: Secret::new("s3cret") },
        ),
        Dialect::AgentProvider => ("https://provider.example", EndpointAuth::Bearer(Secret::new("t0ken"))),
        Dialect::Mcp => ("https://mcp.example/mcp", EndpointAuth::Bearer(Secret::new("t0ken"))),
        Dialect::Median => ("https://median.example/base", EndpointAuth::SigningSecret(Secret::new("test-secret"))),
    };
    EndpointSettings {
        name: "provider".to_owned(),
        dialect,
        base_url: base_url.to_owned(),
        auth,
        name_prefix: None,
        enabled: true,
        sync_policy: SyncPolicy::Reject,
        sync_interval_s: None,
        tool_changes: ToolChanges::Accept,
        inline_manifest: None,
        trusted: false,
        default_risk: Risk::Medium,
    }
}

fn tool(name: &str, provider_name: &str, kind: &str, risk: Option<&str>) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        provider_name: provider_name.to_owned(),
        title: None,
        description: None,
        kind: ToolKind::parse(kind).expect("a kind"),
        input_schema: JsonText::of(&json!({"type": "object"})),
        output_schema: None,
        risk: risk.map(|word| Risk::parse(word).expect("a risk")),
        requires_confirmation: false,
        llm_format: false,
        mutating: false,
        timeout: Some(Duration::from_secs(1)),
        provider: None,
        mcp: None,
        hash: String::new(),
    }
}

/// A tool of a dialect; one of an agent-provider reads orders.
fn tool_of(dialect: Dialect, kind: &str, risk: Option<&str>) -> ToolSpec {
    match dialect {
        Dialect::Topology | Dialect::Median | Dialect::Mcp => tool("weather-report", "weather-report", kind, risk),
        Dialect::AgentProvider => provider_tool(kind == "command"),
    }
}

/// What is recorded of an operation of this tool.
fn intent(tool: &ToolSpec, context: &AnswerContext<'_>) -> OperationIntent {
    OperationIntent {
        mark: context.operation.cloned().expect("an operation has a mark"),
        org_id: OrgId::from_uuid(uuid::Uuid::nil()),
        run_id: RunId::from_uuid(uuid::Uuid::nil()),
        endpoint_id: EndpointId::from_uuid(uuid::Uuid::nil()),
        origin: "https://provider.example".to_owned(),
        provider_tool: tool.provider_name.clone(),
        terms: tool.provider.clone().expect("a provider's tool has terms"),
        body: JsonText::of(&json!({})),
        trace_id: TRACE_ID.to_owned(),
        locale: context.locale.map(str::to_owned),
        timezone: context.timezone.map(str::to_owned),
        timeout: Duration::from_secs(1),
        created_at: Timestamp::default(),
    }
}

fn provider_tool(mutating: bool) -> ToolSpec {
    let kinds: &[EvidenceKind] = if mutating {
        &[EvidenceKind::Action, EvidenceKind::Reference]
    } else {
        &[EvidenceKind::Entity, EvidenceKind::Value, EvidenceKind::Completeness]
    };
    let (name, kind) = if mutating { ("order.cancel", "command") } else { ("order.get", "query") };
    ToolSpec {
        mutating,
        provider: Some(Arc::new(ProviderTerms {
            contract_version: "2026-09-01".to_owned(),
            languages: vec!["en".to_owned(), "ar".to_owned(), "de".to_owned()],
            produces_evidence: kinds.iter().copied().collect(),
            action: mutating.then(|| "order.cancel".to_owned()),
            receipt_retention: Some(Duration::from_secs(86_400)),
        })),
        ..tool(&format!("shop_{name}"), name, kind, None)
    }
}

fn mark() -> OperationMark {
    OperationMark { id: OPERATION_ID.parse().expect("an id"), fingerprint: format!("sha256:{}", "ab".repeat(32)) }
}

fn endpoint(dialect: Dialect) -> Endpoint {
    Endpoint {
        id: EndpointId::from_uuid(uuid::Uuid::nil()),
        org_id: OrgId::from_uuid(uuid::Uuid::nil()),
        settings: settings(dialect),
        callback_secrets: Vec::new(),
        sync: SyncState::default(),
        version: 1,
        created_at: Timestamp::default(),
        updated_at: Timestamp::default(),
    }
}
