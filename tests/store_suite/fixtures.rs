//! A home for a store, and records to put into it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use toolgate::adapters::secrets::SecretBox;
use toolgate::adapters::store::sqlite::{SqliteOptions, SqliteStore};
use toolgate::domain::endpoint::{
    CallbackSecret, Endpoint, EndpointAuth, EndpointSettings, SyncPolicy, SyncState, ToolChanges,
};
use toolgate::domain::evidence::EvidenceKind;
use toolgate::domain::group::{Effect, Group, Rule};
use toolgate::domain::ids::{AuditId, EndpointId, GroupId, KeyId, OrgId, RunId, SyncId};
use toolgate::domain::json::JsonText;
use toolgate::domain::key::{AgentKey, KeyHash, WorkspaceKey};
use toolgate::domain::manifest::{SyncOutcome, SyncTrigger};
use toolgate::domain::org::{ConfirmationFallback, Hook, LimitOverrides, Org, OrgState, Retention};
use toolgate::domain::risk::Risk;
use toolgate::domain::run::{Attempt, CallContext, Run, RunIntent, RunOutcome, RunStatus};
use toolgate::domain::secret::Secret;
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::{DeclaredTool, Dialect, HeaderParam, McpTool, ProviderTerms, ToolKind, ToolSpec};
use toolgate::engine::store_port::{
    Admission, AuditEntry, CallbackRecord, NewToolSet, PageRequest, RunChange, Store, SyncEnd, SyncRecord, TokenUse,
};
use uuid::Uuid;

pub(crate) const MASTER_KEY: [u8; 32] = [7; 32];
/// 2026-01-01T00:00:00Z
pub(crate) const T0: Timestamp = Timestamp::from_millis(1_767_225_600_000);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Where a store lives; it can be left and entered again.
pub(crate) struct Home {
    dir: TempDir,
    store: Option<Arc<dyn Store>>,
}

impl Home {
    pub(crate) fn sqlite() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let store = open_sqlite(dir.path());
        Self { dir, store: Some(store) }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &**self.store.as_ref().expect("the home is entered")
    }

    /// Writes what is queued, leaves and enters again.
    pub(crate) async fn restart(&mut self) {
        self.store().close().await;
        self.drop_and_reopen();
    }

    /// Leaves without closing.
    pub(crate) fn drop_and_reopen(&mut self) {
        self.store = None;
        self.store = Some(open_sqlite(self.dir.path()));
    }
}

pub(crate) fn open_sqlite(dir: &Path) -> Arc<dyn Store> {
    let store = SqliteStore::open(dir, SecretBox::new(MASTER_KEY, None), SqliteOptions::default());
    Arc::new(store.expect("the store opens"))
}

pub(crate) fn after(ms: u64) -> Timestamp {
    T0.plus(Duration::from_millis(ms))
}

/// Ids rise as a clock would make them.
pub(crate) fn uuid() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

pub(crate) fn hash(text: &str) -> KeyHash {
    toolgate::domain::key::hash(text)
}

pub(crate) fn first(limit: usize) -> PageRequest {
    PageRequest { limit, cursor: None }
}

pub(crate) fn json(text: &str) -> JsonText {
    JsonText::parse(text).expect("JSON")
}

pub(crate) fn audit(org: OrgId) -> AuditEntry {
    audit_at(org, T0)
}

pub(crate) fn audit_at(org: OrgId, at: Timestamp) -> AuditEntry {
    AuditEntry {
        id: AuditId::from_uuid(uuid()),
        org_id: org,
        at,
        actor_kind: "workspace_key".to_owned(),
        actor_id: "1".to_owned(),
        actor_name: "ci".to_owned(),
        action: "endpoint.create".to_owned(),
        object: "endpoint/weather".to_owned(),
        changes: json(r#"{"enabled":  [true,false]}"#),
        from: "10.0.0.1".to_owned(),
        write: None,
    }
}

pub(crate) fn hook(name: &str) -> Hook {
    Hook { url: format!("https://{name}.example.com/in"), secret: Secret::new(format!("whsec_of-the-{name}")) }
}

pub(crate) fn org(slug: &str) -> Org {
    let mut operator_limits = LimitOverrides::default();
    operator_limits.set("max_tools", Some(300));
    let mut tenant_limits = LimitOverrides::default();
    tenant_limits.set("tool_per_second", Some(3));
    Org {
        id: OrgId::from_uuid(uuid()),
        slug: slug.to_owned(),
        name: format!("{slug} Ltd"),
        state: OrgState::Active,
        operator_limits,
        tenant_limits,
        egress_allow: vec!["127.0.0.0/8".parse().expect("a network")],
        retention: Retention::default(),
        reviewer: Some(hook("reviewer")),
        webhook: None,
        confirmation_fallback: ConfirmationFallback::Approval,
        version: 1,
        created_at: T0,
        updated_at: T0,
    }
}

pub(crate) fn group(name: &str) -> Group {
    Group {
        id: GroupId::from_uuid(uuid()),
        name: name.to_owned(),
        rules: vec![Rule {
            effect: Effect::Allow,
            tools: Some(vec!["weather-*".to_owned()]),
            endpoints: None,
            risks: Some(vec![Risk::Low, Risk::Reviewed]),
        }],
        version: 1,
        created_at: T0,
        updated_at: T0,
    }
}

pub(crate) fn workspace_key(org: OrgId) -> WorkspaceKey {
    WorkspaceKey {
        id: KeyId::from_uuid(uuid()),
        org_id: org,
        name: "ci".to_owned(),
        expires_at: Some(after(1000)),
        last_used_at: None,
        version: 1,
        created_at: T0,
        updated_at: T0,
    }
}

pub(crate) fn agent_key(org: OrgId, groups: Vec<GroupId>) -> AgentKey {
    let mut limits = LimitOverrides::default();
    limits.set("agent_key_per_second", Some(5));
    AgentKey {
        id: KeyId::from_uuid(uuid()),
        org_id: org,
        name: "bot".to_owned(),
        groups,
        limits,
        confirms: true,
        expires_at: None,
        last_used_at: None,
        version: 1,
        created_at: T0,
        updated_at: T0,
    }
}

/// A stored organization with a group, a workspace key and an agent key.
pub(crate) struct Tenant {
    pub(crate) org: Org,
    pub(crate) group: Group,
    pub(crate) workspace_key: WorkspaceKey,
    pub(crate) agent_key: AgentKey,
}

pub(crate) async fn tenant(store: &dyn Store, slug: &str) -> Tenant {
    let org = org(slug);
    let group = group("default");
    let workspace_key = workspace_key(org.id);
    let agent_key = agent_key(org.id, vec![group.id]);
    let created =
        store.create_org(&org, &group, &workspace_key, hash(&format!("{slug} workspace")), audit(org.id)).await;
    created.expect("the organization is created");
    let created = store.create_agent_key(&agent_key, hash(&format!("{slug} agent")), audit(org.id)).await;
    created.expect("the key is created");
    Tenant { org, group, workspace_key, agent_key }
}

pub(crate) fn endpoint(org: OrgId, name: &str) -> Endpoint {
    Endpoint {
        id: EndpointId::from_uuid(uuid()),
        org_id: org,
        settings: EndpointSettings {
            name: name.to_owned(),
            dialect: Dialect::Topology,
            base_url: "https://pulse.example.com".to_owned(),
            auth: EndpointAuth::Header { name: "X-Auth".to_owned(), value: Secret::new("s3cr3t-of-the-provider") },
            name_prefix: Some("w_".to_owned()),
            enabled: true,
            sync_policy: SyncPolicy::Skip,
            sync_interval_s: Some(60),
            tool_changes: ToolChanges::Review,
            inline_manifest: Some(json(r#"[{"id": "topology:a"}]"#)),
            trusted: false,
            default_risk: Risk::Medium,
        },
        callback_secrets: vec![
            CallbackSecret { secret: Secret::new("whsec_current-secret"), valid_until: None },
            CallbackSecret { secret: Secret::new("whsec_former-secret"), valid_until: Some(after(5)) },
        ],
        sync: SyncState::default(),
        version: 1,
        created_at: T0,
        updated_at: T0,
    }
}

/// A tenant with one endpoint.
pub(crate) async fn tenant_with_endpoint(store: &dyn Store, slug: &str) -> (Tenant, Endpoint) {
    let tenant = tenant(store, slug).await;
    let endpoint = endpoint(tenant.org.id, "weather");
    store.create_endpoint(&endpoint, 100, None, audit(tenant.org.id)).await.expect("the endpoint is created");
    (tenant, endpoint)
}

pub(crate) fn tool(name: &str) -> DeclaredTool {
    let declared = serde_json::json!({"id": format!("topology:{name}"), "zeta": 1, "alpha": 2});
    DeclaredTool {
        spec: ToolSpec {
            name: name.to_owned(),
            provider_name: name.to_owned(),
            title: Some("Title".to_owned()),
            description: None,
            kind: ToolKind::Query,
            input_schema: JsonText::of(&serde_json::json!({"type": "object", "properties": {"b": {}, "a": true}})),
            output_schema: Some(JsonText::of(&serde_json::json!(true))),
            risk: Some(Risk::High),
            requires_confirmation: true,
            llm_format: false,
            mutating: true,
            timeout: Some(Duration::from_millis(1500)),
            mcp: Some(Arc::new(McpTool {
                declared: JsonText::parse(r#"{"name":"x", "big":1e400}"#).expect("JSON"),
                read_only: true,
                header_params: vec![HeaderParam {
                    path: vec!["a".to_owned(), "b".to_owned()],
                    name: "Region".to_owned(),
                }],
            })),
            provider: Some(Arc::new(ProviderTerms {
                contract_version: "2026-09-01".to_owned(),
                languages: vec!["ar-EG".to_owned(), "en".to_owned()],
                produces_evidence: [EvidenceKind::Action, EvidenceKind::Value].into_iter().collect(),
                action: Some("order.cancel".to_owned()),
                receipt_retention: Some(Duration::from_secs(86_400)),
            })),
            hash: "ab".repeat(32),
        },
        declared,
    }
}

pub(crate) fn sync_record(endpoint: EndpointId, at: Timestamp) -> SyncRecord {
    SyncRecord {
        id: SyncId::from_uuid(uuid()),
        endpoint_id: endpoint,
        at,
        trigger: SyncTrigger::Interval,
        outcome: SyncOutcome::Unchanged,
        fault: None,
        http_status: Some(200),
        duration_ms: 12,
        hash: Some("cd".repeat(32)),
        diff: None,
        skipped: Vec::new(),
    }
}

pub(crate) fn sync_end(endpoint: &Endpoint, tools: Option<NewToolSet>) -> SyncEnd {
    SyncEnd {
        org_id: endpoint.org_id,
        record: sync_record(endpoint.id, T0),
        state: SyncState { last_synced_at: Some(T0), last_good_at: Some(T0), ..SyncState::default() },
        tools,
        next_due: None,
    }
}

/// Puts a set of tools in force.
pub(crate) async fn apply_tools(store: &dyn Store, endpoint: &Endpoint, names: &[&str]) {
    let config = store.load_org(endpoint.org_id).await.expect("loaded").expect("it exists");
    let tools = names.iter().map(|name| tool(name)).collect();
    let set = NewToolSet { tools, expected_revision: config.revision, accepted: Vec::new() };
    store.finish_sync(&sync_end(endpoint, Some(set))).await.expect("the set is applied");
}

pub(crate) fn attempt(outcome: &str) -> Attempt {
    Attempt { at: T0, duration_ms: 3, outcome: outcome.to_owned(), http_status: Some(202) }
}

pub(crate) fn run_at(endpoint: &Endpoint, at: Timestamp) -> Run {
    Run {
        intent: RunIntent {
            id: RunId::from_uuid(uuid()),
            org_id: endpoint.org_id,
            agent_key: KeyId::from_uuid(uuid()),
            endpoint_id: endpoint.id,
            endpoint_name: endpoint.settings.name.clone(),
            dialect: Dialect::Topology,
            tool: "weather-report".to_owned(),
            kind: ToolKind::Query,
            llm_format: false,
            tool_hash: "ef".repeat(32),
            request_id: Some("caller's own".to_owned()),
            caller: None,
            keyed: true,
            confirmed: true,
            context: CallContext {
                conversation: Some("c1".to_owned()),
                turn: Some("7".to_owned()),
                locale: Some("ar-EG".to_owned()),
                timezone: Some("Africa/Cairo".to_owned()),
            },
            arguments_sent: json(r#"{"city": "Secretville",  "n": "725653563933458432"}"#),
            arguments_coerced: Some(json(r#"{"city":"Secretville","n":725653563933458432}"#)),
            created_at: at,
            expires_at: Some(at.plus(Duration::from_secs(900))),
        },
        outcome: RunOutcome::bare(RunStatus::Pending, true),
        provider_correlation_id: None,
        withheld_result: None,
        operation_id: None,
        attempts: Vec::new(),
        updated_at: at,
        finished_at: None,
    }
}

/// A run as its actor knows it.
pub(crate) fn bare(mut run: Run) -> Run {
    run.intent.arguments_sent = json("null");
    run.intent.arguments_coerced = None;
    run.outcome.result = None;
    run.withheld_result = None;
    run
}

pub(crate) async fn pending_run(store: &dyn Store, endpoint: &Endpoint) -> Run {
    let run = run_at(endpoint, T0);
    store.insert_run(&run, Admission::default()).await.expect("the run is inserted");
    run
}

pub(crate) fn finished_run(endpoint: &Endpoint, at: Timestamp) -> Run {
    let mut run = run_at(endpoint, at);
    run.outcome = RunOutcome::completed(json(r#"{"sky":"confidential-blue"}"#));
    run.finished_at = Some(at);
    run
}

pub(crate) fn change(run: &Run, outcome: RunOutcome) -> RunChange {
    RunChange {
        org_id: run.intent.org_id,
        run_id: run.intent.id,
        outcome,
        withheld_result: None,
        attempts: Vec::new(),
        operation: None,
        approval: None,
        by_sender: false,
        at: after(10),
    }
}

pub(crate) fn callback(endpoint: &Endpoint, webhook_id: &str, correlation_id: &str) -> CallbackRecord {
    CallbackRecord {
        endpoint_id: endpoint.id,
        webhook_id: webhook_id.to_owned(),
        request_id: None,
        correlation_id: Some(correlation_id.to_owned()),
        body: json(r#"{"type":"tool.result", "data":{"payload":"early-secret-payload"}}"#),
        at: T0,
    }
}

pub(crate) fn token(seed: u8) -> TokenUse {
    TokenUse { nonce_hash: [seed; 32], expires_at: after(600_000) }
}

pub(crate) fn with_token(seed: u8) -> Admission {
    Admission { token: Some(token(seed)), ..Admission::default() }
}
