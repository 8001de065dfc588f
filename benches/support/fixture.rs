//! Organizations, tools and runs as the store takes them.

use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use toolgate::adapters::secrets::{SecretBox, make_data_dir};
use toolgate::adapters::store::sqlite::{SqliteOptions, SqliteStore};
use toolgate::domain::canonical::sha256_hex;
use toolgate::domain::endpoint::{
    DEFAULT_RISK, Endpoint, EndpointAuth, EndpointSettings, SyncPolicy, SyncState, ToolChanges,
};
use toolgate::domain::group::{Effect, Group, Rule};
use toolgate::domain::ids::{AuditId, EndpointId, GroupId, KeyId, OrgId, RunId, SyncId};
use toolgate::domain::json::JsonText;
use toolgate::domain::key::{WorkspaceKey, hash};
use toolgate::domain::manifest::{SyncOutcome, SyncTrigger};
use toolgate::domain::org::{ConfirmationFallback, LimitOverrides, Org, OrgState, Retention};
use toolgate::domain::run::{CallContext, Run, RunIntent, RunOutcome, RunStatus};
use toolgate::domain::secret::Secret;
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::{DeclaredTool, Dialect, ToolKind, ToolSpec};
use toolgate::engine::store_port::{AuditEntry, NewToolSet, Store, SyncEnd, SyncRecord};
use uuid::Uuid;

/// Where a bench's runs belong.
#[derive(Clone, Debug)]
pub struct BenchOrg {
    /// The organization.
    pub id: OrgId,
    /// Its one endpoint.
    pub endpoint: EndpointId,
}

/// An organization that is in no store.
pub fn unstored_org() -> BenchOrg {
    BenchOrg { id: OrgId::from_uuid(Uuid::now_v7()), endpoint: EndpointId::from_uuid(Uuid::now_v7()) }
}

/// The embedded store in `folder`.
pub fn open_store(folder: &Path) -> Arc<dyn Store> {
    make_data_dir(folder).expect("a folder");
    Arc::new(SqliteStore::open(folder, SecretBox::new([7; 32], None), SqliteOptions::default()).expect("it opens"))
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000)
}

fn audit(org_id: OrgId) -> AuditEntry {
    AuditEntry {
        id: AuditId::from_uuid(Uuid::now_v7()),
        org_id,
        at: now(),
        actor_kind: "operator".to_owned(),
        actor_id: String::new(),
        actor_name: "bench".to_owned(),
        action: "bench".to_owned(),
        object: "bench".to_owned(),
        changes: JsonText::of(&json!({})),
        from: String::new(),
        write: None,
    }
}

/// Stores an organization with one endpoint of so many tools.
pub async fn add_org(store: &dyn Store, number: usize, tools: usize) -> BenchOrg {
    let org = unstored_org();
    let at = now();
    let record = Org {
        id: org.id,
        slug: format!("org-{number}"),
        name: format!("Organization {number}"),
        state: OrgState::Active,
        operator_limits: LimitOverrides::default(),
        tenant_limits: LimitOverrides::default(),
        egress_allow: Vec::new(),
        retention: Retention::default(),
        reviewer: None,
        webhook: None,
        confirmation_fallback: ConfirmationFallback::default(),
        version: 1,
        created_at: at,
        updated_at: at,
    };
    let everything = Rule { effect: Effect::Allow, tools: Some(vec!["*".to_owned()]), endpoints: None, risks: None };
    let group = Group {
        id: GroupId::from_uuid(Uuid::now_v7()),
        name: "default".to_owned(),
        rules: vec![everything],
        version: 1,
        created_at: at,
        updated_at: at,
    };
    let key = WorkspaceKey {
        id: KeyId::from_uuid(Uuid::now_v7()),
        org_id: org.id,
        name: "first".to_owned(),
        expires_at: None,
        last_used_at: None,
        version: 1,
        created_at: at,
        updated_at: at,
    };
    store.create_org(&record, &group, &key, hash(&format!("key of {number}")), audit(org.id)).await.expect("stored");
    store.create_endpoint(&endpoint(&org), 100, None, audit(org.id)).await.expect("stored");
    let config = store.load_org(org.id).await.expect("it loads").expect("it is there");
    let end = sync_end(&org, config.revision, tools);
    store.finish_sync(&end).await.expect("stored");
    org
}

fn endpoint(org: &BenchOrg) -> Endpoint {
    Endpoint {
        id: org.endpoint,
        org_id: org.id,
        settings: EndpointSettings {
            name: "tools".to_owned(),
            dialect: Dialect::Topology,
            base_url: "https://tools.example.com".to_owned(),
            auth: EndpointAuth::Header { name: "X-Auth".to_owned(), value: Secret::new("secret") },
            name_prefix: None,
            enabled: true,
            sync_policy: SyncPolicy::Reject,
            sync_interval_s: None,
            tool_changes: ToolChanges::Accept,
            inline_manifest: None,
            trusted: false,
            default_risk: DEFAULT_RISK,
        },
        callback_secrets: Vec::new(),
        sync: SyncState::default(),
        version: 1,
        created_at: now(),
        updated_at: now(),
    }
}

fn sync_end(org: &BenchOrg, expected_revision: u64, tools: usize) -> SyncEnd {
    let state = SyncState {
        last_synced_at: Some(now()),
        last_good_at: Some(now()),
        manifest_hash: Some("0".repeat(64)),
        applied_version: Some(1),
        ..SyncState::default()
    };
    let record = SyncRecord {
        id: SyncId::from_uuid(Uuid::now_v7()),
        endpoint_id: org.endpoint,
        at: now(),
        trigger: SyncTrigger::Registration,
        outcome: SyncOutcome::Applied,
        fault: None,
        http_status: Some(200),
        duration_ms: 5,
        hash: state.manifest_hash.clone(),
        diff: None,
        skipped: Vec::new(),
    };
    let tools = (0..tools).map(declared).collect();
    let set = NewToolSet { tools, expected_revision, accepted: Vec::new() };
    SyncEnd { org_id: org.id, record, state, tools: Some(set), next_due: None }
}

fn declared(number: usize) -> DeclaredTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "customer": {"type": "string", "description": "Who the order belongs to.", "minLength": 1},
            "limit": {"type": "integer", "description": "How many to answer.", "minimum": 1, "maximum": 100},
            "since": {"type": "string", "format": "date", "description": "Only orders of this day or later."}
        },
        "required": ["customer"],
        "additionalProperties": false
    });
    let name = format!("orders-search-{number}");
    let declared = json!({
        "id": format!("topology:{name}"), "title": "Search orders", "kind": "query", "input_schema": schema,
        "description": "Finds the orders of a customer, newest first, with their state and total."
    });
    let spec = ToolSpec {
        provider_name: name.clone(),
        name,
        title: Some("Search orders".to_owned()),
        description: declared["description"].as_str().map(str::to_owned),
        kind: ToolKind::Query,
        input_schema: JsonText::of(&schema),
        output_schema: None,
        risk: None,
        requires_confirmation: false,
        llm_format: false,
        mutating: false,
        timeout: None,
        provider: None,
        mcp: None,
        hash: sha256_hex(&declared),
    };
    DeclaredTool { spec, declared }
}

/// A run that has just been admitted.
pub fn open_run(org: &BenchOrg) -> Run {
    let intent = RunIntent {
        id: RunId::from_uuid(Uuid::now_v7()),
        org_id: org.id,
        agent_key: KeyId::from_uuid(Uuid::nil()),
        endpoint_id: org.endpoint,
        endpoint_name: "tools".to_owned(),
        dialect: Dialect::Topology,
        tool: "orders-search-0".to_owned(),
        kind: ToolKind::Query,
        llm_format: false,
        tool_hash: "0".repeat(64),
        request_id: Some("r-1".to_owned()),
        caller: Some("whatsapp:+201000000000".to_owned()),
        keyed: false,
        confirmed: false,
        context: CallContext::default(),
        arguments_sent: JsonText::of(&json!({"customer": "ACME GmbH", "limit": "20", "since": "2026-01-01"})),
        arguments_coerced: Some(JsonText::of(&json!({"customer": "ACME GmbH", "limit": 20, "since": "2026-01-01"}))),
        created_at: now(),
        expires_at: Some(Timestamp::from_millis(now().as_millis() + 900_000)),
    };
    Run {
        intent,
        outcome: RunOutcome::bare(RunStatus::Pending, true),
        provider_correlation_id: None,
        withheld_result: None,
        operation_id: None,
        attempts: Vec::new(),
        updated_at: now(),
        finished_at: None,
    }
}

/// A run that its provider accepted under an id of its own.
pub fn accepted_run(org: &BenchOrg, correlation_id: &str) -> Run {
    Run { provider_correlation_id: Some(correlation_id.to_owned()), ..open_run(org) }
}

/// A run that is done.
pub fn finished_run(org: &BenchOrg) -> Run {
    let result = JsonText::of(&json!({"orders": [{"id": "ORD-1042", "state": "shipped", "total": "99.50"}]}));
    Run { outcome: RunOutcome::completed(result), finished_at: Some(now()), ..open_run(org) }
}
