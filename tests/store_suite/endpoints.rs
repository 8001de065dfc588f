//! Endpoints, their syncs and their tools.

use crate::fixtures::*;
use futures_util::future::join_all;
use std::time::Duration;
use toolgate::domain::change::Change;
use toolgate::domain::endpoint::{Endpoint, EndpointAuth, SyncState};
use toolgate::domain::ids::{EndpointId, OrgId};
use toolgate::domain::manifest::{
    ChangedTool, ManifestDiff, SkippedTool, SyncFault, SyncOutcome, SyncReason, SyncTrigger,
};
use toolgate::domain::risk::Risk;
use toolgate::domain::run::RunStatus;
use toolgate::domain::secret::Secret;
use toolgate::domain::tool::{DeclaredTool, Dialect, PolicyChange, ToolPolicy};
use toolgate::engine::store_port::{Admission, Due, NewToolSet, PageRequest, Store, StoreError};

async fn names(store: &dyn Store, endpoint: &Endpoint) -> Vec<String> {
    let tools = store.declared_tools(endpoint.org_id, endpoint.id).await.unwrap();
    tools.into_iter().map(|tool| tool.spec.name).collect()
}

async fn set(store: &dyn Store, endpoint: &Endpoint, tools: Vec<DeclaredTool>) -> NewToolSet {
    let config = store.load_org(endpoint.org_id).await.unwrap().expect("it exists");
    NewToolSet { tools, expected_revision: config.revision, accepted: Vec::new() }
}

pub(crate) async fn an_endpoint_is_stored_whole(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let mut median = self::endpoint(tenant.org.id, "median");
    median.settings.auth = EndpointAuth::SigningSecret(Secret::new("signing"));
    median.settings.inline_manifest = None;
    median.callback_secrets.clear();
    home.store().create_endpoint(&median, 100, None, audit(tenant.org.id)).await.unwrap();
    let mut keyed = self::endpoint(tenant.org.id, "a-keyed");
    keyed.settings.auth = EndpointAuth::MedianKey(Secret::new("mk_1"));
    home.store().create_endpoint(&keyed, 100, None, audit(tenant.org.id)).await.unwrap();
    home.drop_and_reopen();
    let store = home.store();
    for stored in [&endpoint, &median, &keyed] {
        assert_eq!(store.endpoint(tenant.org.id, stored.id).await.unwrap().as_ref(), Some(stored));
    }
    assert_eq!(store.endpoint_org(endpoint.id).await.unwrap(), Some(tenant.org.id));
    assert_eq!(store.endpoint_org(EndpointId::from_uuid(uuid())).await.unwrap(), None);
    let config = store.load_org(tenant.org.id).await.unwrap().expect("it exists");
    let by_name: Vec<Endpoint> = config.endpoints.into_iter().map(|(endpoint, _)| endpoint).collect();
    assert_eq!(by_name, [keyed, median, endpoint]);
}

/// Whatever credentials an MCP server wants, and what the tenant says of its tools.
pub(crate) async fn an_mcp_endpoint_is_stored_whole(home: &mut Home) {
    let tenant = tenant(home.store(), "acme").await;
    let header = EndpointAuth::Header { name: "X-Api-Key".to_owned(), value: Secret::new("k") };
    let auths = [EndpointAuth::None, EndpointAuth::Bearer(Secret::new("t0ken")), header];
    let mut made = Vec::new();
    for (index, auth) in auths.into_iter().enumerate() {
        let mut endpoint = self::endpoint(tenant.org.id, &format!("mcp-{index}"));
        endpoint.settings.dialect = Dialect::Mcp;
        endpoint.settings.base_url = "https://mcp.example.com/mcp/?tenant=a".to_owned();
        endpoint.settings.auth = auth;
        endpoint.settings.inline_manifest = None;
        endpoint.settings.trusted = index == 1;
        endpoint.settings.default_risk = [Risk::Low, Risk::Reviewed, Risk::High][index];
        endpoint.callback_secrets.clear();
        home.store().create_endpoint(&endpoint, 100, None, audit(tenant.org.id)).await.unwrap();
        made.push(endpoint);
    }
    home.drop_and_reopen();
    for endpoint in &made {
        assert_eq!(home.store().endpoint(tenant.org.id, endpoint.id).await.unwrap().as_ref(), Some(endpoint));
    }
    let mut changed = made.remove(0);
    changed.settings.trusted = true;
    changed.settings.default_risk = Risk::High;
    changed.settings.auth = EndpointAuth::Bearer(Secret::new("new"));
    let stored = home.store().update_endpoint(&changed, None, audit(tenant.org.id)).await.unwrap();
    assert_eq!(stored.settings, changed.settings);
    home.drop_and_reopen();
    let stored = home.store().endpoint(tenant.org.id, changed.id).await.unwrap().expect("it exists");
    assert_eq!(stored.settings, changed.settings);
}

/// The era of a server, and what it declared to the last character, outlive a restart.
pub(crate) async fn an_mcp_server_is_remembered(home: &mut Home) {
    let (tenant, mut endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let mut declared = tool("a");
    declared.spec.provider = None;
    let set = set(home.store(), &endpoint, vec![declared.clone()]).await;
    let mut end = sync_end(&endpoint, Some(set));
    end.state.protocol_version = Some("2025-06-18".to_owned());
    end.record.trigger = SyncTrigger::ListChanged;
    home.store().finish_sync(&end).await.unwrap();
    home.drop_and_reopen();
    let config = home.store().load_org(tenant.org.id).await.unwrap().expect("it exists");
    let (stored, tools) = &config.endpoints[0];
    assert_eq!(stored.sync, end.state);
    assert_eq!(tools, &[declared.spec.clone()]);
    assert_eq!(tools[0].mcp.as_ref().unwrap().declared.as_str(), r#"{"name":"x", "big":1e400}"#);
    let syncs = home.store().list_syncs(tenant.org.id, endpoint.id, &first(10)).await.unwrap();
    assert_eq!(syncs.items[0].trigger, SyncTrigger::ListChanged);
    // A server that is set up anew elsewhere keeps it until a sync says otherwise.
    endpoint.settings.base_url = "https://other.example.com/mcp".to_owned();
    let stored = home.store().update_endpoint(&endpoint, None, audit(tenant.org.id)).await.unwrap();
    assert_eq!(stored.sync.protocol_version.as_deref(), Some("2025-06-18"));
}

pub(crate) async fn an_organization_has_no_more_endpoints_than_allowed(home: &mut Home) {
    let store = home.store();
    let (tenant, _) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    store.create_endpoint(&endpoint(id, "two"), 2, None, audit(id)).await.unwrap();
    let refused = store.create_endpoint(&endpoint(id, "three"), 2, None, audit(id)).await;
    assert!(matches!(refused, Err(StoreError::LimitReached { limit: 2 })), "{refused:?}");
}

/// IBM/mcp-context-forge#6491: a second endpoint of one name replaces nothing.
pub(crate) async fn an_endpoint_name_is_taken_once(home: &mut Home) {
    let store = home.store();
    let (tenant, one) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let taken = store.create_endpoint(&endpoint(id, "weather"), 100, None, audit(id)).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { ref name }) if name == "weather"));
    let mut two = endpoint(id, "two");
    store.create_endpoint(&two, 100, None, audit(id)).await.unwrap();
    two.settings.name = "weather".to_owned();
    let taken = store.update_endpoint(&two, None, audit(id)).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { ref name }) if name == "weather"));
    assert_eq!(store.endpoint(id, one.id).await.unwrap(), Some(one));
    let other = self::tenant(store, "other").await.org.id;
    store.create_endpoint(&endpoint(other, "weather"), 100, None, audit(other)).await.unwrap();
}

pub(crate) async fn a_settings_update_leaves_what_the_syncs_found(home: &mut Home) {
    let store = home.store();
    let (tenant, mut endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    apply_tools(store, &endpoint, &["weather-report"]).await;
    let found = store.endpoint(id, endpoint.id).await.unwrap().expect("it exists").sync;
    assert_eq!(found.last_good_at, Some(T0));

    endpoint.settings.base_url = "https://other.example.com".to_owned();
    endpoint.settings.auth = EndpointAuth::Header { name: "X-Key".to_owned(), value: Secret::new("new") };
    endpoint.callback_secrets.truncate(1);
    endpoint.updated_at = after(7);
    let stored = store.update_endpoint(&endpoint, Some(T0), audit(id)).await.unwrap();
    assert_eq!(stored, Endpoint { sync: found, version: 2, ..endpoint.clone() });
    assert_eq!(store.endpoint(id, endpoint.id).await.unwrap(), Some(stored));
    assert_eq!(names(store, &endpoint).await, ["weather-report"]);
    assert!(matches!(store.update_endpoint(&endpoint, None, audit(id)).await, Err(StoreError::Stale)));
    assert_eq!(store.take_due(T0, HOUR, 9).await.unwrap().len(), 1, "its next sync is due as it was told");
}

/// Kuadrant/mcp-gateway#110: a new set leaves nothing of the old one beside it.
pub(crate) async fn a_set_of_tools_is_swapped_whole(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    apply_tools(store, &endpoint, &["c", "a", "b"]).await;
    assert_eq!(names(store, &endpoint).await, ["c", "a", "b"], "in the provider's order");
    apply_tools(store, &endpoint, &["x_a", "b"]).await;
    let config = store.load_org(tenant.org.id).await.unwrap().expect("it exists");
    assert_eq!(config.endpoints[0].1, [tool("x_a").spec, tool("b").spec]);
    apply_tools(store, &endpoint, &[]).await;
    assert!(names(store, &endpoint).await.is_empty());
}

/// docker/mcp-gateway#186: two endpoints offer one name; the one being synced fails.
pub(crate) async fn a_name_of_another_endpoint_is_refused_and_nothing_changes(home: &mut Home) {
    let store = home.store();
    let (tenant, one) = tenant_with_endpoint(store, "acme").await;
    let two = endpoint(tenant.org.id, "two");
    store.create_endpoint(&two, 100, None, audit(tenant.org.id)).await.unwrap();
    apply_tools(store, &one, &["send-email"]).await;
    apply_tools(store, &two, &["kept"]).await;
    let before = store.load_org(tenant.org.id).await.unwrap();
    let mut end = sync_end(&two, Some(set(store, &two, vec![tool("new"), tool("Send_Email")]).await));
    end.state = SyncState { failures_in_a_row: 9, ..SyncState::default() };
    let refused = store.finish_sync(&end).await;
    assert!(matches!(refused, Err(StoreError::NameTaken { ref name }) if name == "Send_Email"), "{refused:?}");
    assert_eq!(store.load_org(tenant.org.id).await.unwrap(), before, "the last good set stays, and so does the rest");
    assert_eq!(names(store, &two).await, ["kept"]);
    assert_eq!(store.list_syncs(tenant.org.id, two.id, &first(9)).await.unwrap().items.len(), 1);
    let other = tenant_with_endpoint(store, "other").await.1;
    apply_tools(store, &other, &["send-email"]).await;
}

pub(crate) async fn a_set_decided_on_an_older_revision_is_stale(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let old = set(store, &endpoint, vec![tool("a")]).await;
    store.create_group(tenant.org.id, &group("g"), audit(tenant.org.id)).await.unwrap();
    let refused = store.finish_sync(&sync_end(&endpoint, Some(old))).await;
    assert!(matches!(refused, Err(StoreError::Stale)));
    assert!(names(store, &endpoint).await.is_empty());
    assert!(store.list_syncs(tenant.org.id, endpoint.id, &first(9)).await.unwrap().items.is_empty());
}

pub(crate) async fn a_sync_of_an_endpoint_that_is_gone_is_not_found(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    store.delete_endpoint(tenant.org.id, endpoint.id, Some(1), T0, audit(tenant.org.id)).await.unwrap();
    let set = set(store, &endpoint, vec![tool("a")]).await;
    assert!(matches!(store.finish_sync(&sync_end(&endpoint, Some(set))).await, Err(StoreError::NotFound)));
    assert!(matches!(store.finish_sync(&sync_end(&endpoint, None)).await, Err(StoreError::NotFound)));
}

pub(crate) async fn hashes_are_accepted_along_with_a_set(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let strict = ToolPolicy { requires_confirmation: Some(true), ..ToolPolicy::default() };
    let change = PolicyChange { requires_confirmation: Change::Set(true), ..PolicyChange::default() };
    store.put_policy(id, "a", &change, audit(id)).await.unwrap();
    let mut set = set(store, &endpoint, vec![tool("a"), tool("b")]).await;
    set.accepted = vec![("a".to_owned(), "h1".to_owned()), ("b".to_owned(), "h2".to_owned())];
    store.finish_sync(&sync_end(&endpoint, Some(set))).await.unwrap();
    let policies = store.load_org(id).await.unwrap().expect("it exists").policies;
    assert_eq!(policies["a"], ToolPolicy { accepted_hash: Some("h1".to_owned()), ..strict });
    assert_eq!(policies["b"].accepted_hash.as_deref(), Some("h2"));
}

pub(crate) async fn the_last_hundred_syncs_are_kept_newest_first(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let mut whole = sync_end(&endpoint, None);
    whole.record = sync_record(endpoint.id, after(1000));
    whole.record.outcome = SyncOutcome::Failed;
    whole.record.fault = Some(SyncFault::new(SyncReason::BadSchema, "tool a: no"));
    whole.record.diff = Some(ManifestDiff {
        added: vec!["a".to_owned()],
        removed: vec!["b".to_owned()],
        changed: vec![ChangedTool { name: "c".to_owned(), members: vec!["description".to_owned()] }],
    });
    whole.record.skipped =
        vec![SkippedTool { tool: "d".to_owned(), fault: SyncFault::new(SyncReason::NameTaken, "taken") }];
    whole.state = SyncState {
        protocol_version: None,
        last_synced_at: Some(after(1)),
        last_good_at: None,
        fault: whole.record.fault.clone(),
        manifest_hash: Some("h".to_owned()),
        manifest_etag: Some("W/\"t\"".to_owned()),
        applied_version: Some(3),
        skipped: whole.record.skipped.clone(),
        failures_in_a_row: 2,
        diagnostics: true,
    };
    store.finish_sync(&whole).await.unwrap();
    assert_eq!(store.endpoint(tenant.org.id, endpoint.id).await.unwrap().expect("it exists").sync, whole.state);
    for number in 0..105 {
        let mut end = sync_end(&endpoint, None);
        end.record = sync_record(endpoint.id, after(number));
        store.finish_sync(&end).await.unwrap();
    }
    let page = store.list_syncs(tenant.org.id, endpoint.id, &first(60)).await.unwrap();
    assert_eq!(page.items[0], whole.record);
    assert_eq!(page.items[1].at, after(104));
    let rest = PageRequest { limit: 60, cursor: page.next_cursor };
    let rest = store.list_syncs(tenant.org.id, endpoint.id, &rest).await.unwrap();
    assert_eq!((rest.items.len(), rest.items[39].at, rest.next_cursor), (40, after(6), None));
}

/// A number that changes on its way through the store would show as a changed tool at every sync.
pub(crate) async fn declared_tools_come_back_to_the_last_digit(home: &mut Home) {
    let store = home.store();
    let (_, endpoint) = tenant_with_endpoint(store, "acme").await;
    let text = r#"{"z":1.0,"a":[2.7976931348623157e300,1.4e-289,-0.1,9007199254740993,18446744073709551615],"x":1.00000000000001e250}"#;
    let mut declared = tool("a");
    declared.declared = serde_json::from_str(text).expect("JSON");
    let set = set(store, &endpoint, vec![declared.clone()]).await;
    store.finish_sync(&sync_end(&endpoint, Some(set))).await.unwrap();
    let stored = store.declared_tools(endpoint.org_id, endpoint.id).await.unwrap();
    assert_eq!(stored, [declared.clone()]);
    assert_eq!(stored[0].declared.to_string(), declared.declared.to_string(), "members keep their order");
    assert!(ManifestDiff::between(&[declared], &stored).is_empty());
    assert_eq!(stored[0].declared["x"].as_f64(), Some(1.00000000000001e250), "and were read exactly to begin with");
}

/// maximhq/bifrost#4998: tools, settings and switches are the same after a restart.
pub(crate) async fn tools_survive_a_restart(home: &mut Home) {
    let (tenant, endpoint) = tenant_with_endpoint(home.store(), "acme").await;
    let mut off = self::endpoint(tenant.org.id, "off");
    off.settings.enabled = false;
    home.store().create_endpoint(&off, 100, None, audit(tenant.org.id)).await.unwrap();
    apply_tools(home.store(), &endpoint, &["a", "b"]).await;
    apply_tools(home.store(), &off, &["c"]).await;
    let before = home.store().load_org(tenant.org.id).await.unwrap().expect("it exists");
    home.drop_and_reopen();
    assert_eq!(home.store().load_org(tenant.org.id).await.unwrap(), Some(before.clone()));
    home.restart().await;
    assert_eq!(home.store().load_org(tenant.org.id).await.unwrap(), Some(before.clone()));
    assert!(!before.endpoints[0].0.settings.enabled);
    assert_eq!(before.endpoints[1].1.len(), 2);
}

pub(crate) async fn a_deleted_endpoint_ends_its_open_runs(home: &mut Home) {
    let store = home.store();
    let (tenant, one) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let two = endpoint(id, "two");
    store.create_endpoint(&two, 100, None, audit(id)).await.unwrap();
    apply_tools(store, &one, &["a"]).await;
    let (open, other) = (pending_run(store, &one).await, pending_run(store, &two).await);
    let finished = finished_run(&one, T0);
    store.insert_run(&finished, Admission::default()).await.unwrap();
    let stale = store.delete_endpoint(id, one.id, Some(7), T0, audit(id)).await;
    assert!(matches!(stale, Err(StoreError::Stale)));

    assert_eq!(store.delete_endpoint(id, one.id, None, after(3), audit(id)).await.unwrap(), [open.intent.id]);
    assert_eq!(store.endpoint(id, one.id).await.unwrap(), None);
    assert!(names(store, &one).await.is_empty());
    let ended = store.run(id, open.intent.id).await.unwrap().expect("the run stays");
    assert_eq!((ended.outcome.status, ended.finished_at), (RunStatus::Cancelled, Some(after(3))));
    assert!(ended.outcome.started && ended.outcome.reason.is_some());
    assert_eq!(store.run(id, finished.intent.id).await.unwrap(), Some(finished));
    assert_eq!(store.open_runs(id).await.unwrap(), [bare(other)]);
    apply_tools(store, &two, &["a"]).await;
}

async fn policy_of(store: &dyn Store, org: OrgId, tool: &str) -> ToolPolicy {
    store.load_org(org).await.unwrap().expect("it exists").policies[tool].clone()
}

pub(crate) async fn a_policy_change_leaves_what_it_does_not_name(home: &mut Home) {
    let store = home.store();
    let id = tenant(store, "acme").await.org.id;
    let whole = PolicyChange {
        risk: Change::Set(Risk::Reviewed),
        requires_confirmation: Change::Set(false),
        timeout: Change::Set(Duration::from_millis(250)),
        pending_ttl: Change::Set(HOUR),
        accepted_hash: Some("h".to_owned()),
    };
    let mut expected = ToolPolicy {
        risk: Some(Risk::Reviewed),
        requires_confirmation: Some(false),
        timeout: Some(Duration::from_millis(250)),
        pending_ttl: Some(HOUR),
        accepted_hash: Some("h".to_owned()),
    };
    store.put_policy(id, "a", &whole, audit(id)).await.unwrap();
    assert_eq!(policy_of(store, id, "a").await, expected);
    store.put_policy(id, "a", &PolicyChange::default(), audit(id)).await.unwrap();
    assert_eq!(policy_of(store, id, "a").await, expected);

    let some = PolicyChange { risk: Change::Clear, timeout: Change::Set(HOUR), ..PolicyChange::accepting("h2") };
    store.put_policy(id, "a", &some, audit(id)).await.unwrap();
    (expected.risk, expected.timeout, expected.accepted_hash) = (None, Some(HOUR), Some("h2".to_owned()));
    assert_eq!(policy_of(store, id, "a").await, expected);
}

pub(crate) async fn of_fifty_accepted_hashes_and_raised_risks_both_stay(home: &mut Home) {
    let store = home.store();
    let id = tenant(store, "acme").await.org.id;
    let tools: Vec<String> = (0..50).map(|n| format!("tool-{n}")).collect();
    let raise = PolicyChange { risk: Change::Set(Risk::High), ..PolicyChange::default() };
    let accept = PolicyChange::accepting("h");
    let changes = tools.iter().flat_map(|tool| [(tool, &raise), (tool, &accept)]);
    for stored in join_all(changes.map(|(tool, change)| store.put_policy(id, tool, change, audit(id)))).await {
        stored.unwrap();
    }
    let both = ToolPolicy { risk: Some(Risk::High), accepted_hash: Some("h".to_owned()), ..ToolPolicy::default() };
    for tool in &tools {
        assert_eq!(policy_of(store, id, tool).await, both, "{tool}");
    }
}

/// A crash in the middle of the first sync leaves an endpoint that is synced all the same.
pub(crate) async fn a_new_endpoint_is_due_before_its_first_sync_ends(home: &mut Home) {
    let id = tenant(home.store(), "acme").await.org.id;
    let (one, never) = (endpoint(id, "one"), endpoint(id, "never"));
    home.store().create_endpoint(&one, 100, Some(after(60_000)), audit(id)).await.unwrap();
    home.store().create_endpoint(&never, 100, None, audit(id)).await.unwrap();
    home.drop_and_reopen();
    let store = home.store();
    assert!(store.take_due(after(59_999), HOUR, 9).await.unwrap().is_empty());
    assert_eq!(store.take_due(after(60_000), HOUR, 9).await.unwrap(), [Due::Sync(id, one.id)]);
    store.finish_sync(&sync_end(&one, None)).await.unwrap();
    assert!(
        store.take_due(T0.plus(24 * HOUR), HOUR, 9).await.unwrap().is_empty(),
        "its sync says when the next one is"
    );
}
