//! Organizations, keys, groups, the feed and the audit trail.

use crate::fixtures::*;
use futures_util::future::join_all;
use toolgate::domain::group::Group;
use toolgate::domain::ids::{GroupId, OrgId, SyncId};
use toolgate::domain::org::{Org, OrgState};
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::PolicyChange;
use toolgate::engine::store_port::{Admission, PageRequest, Store, StoreError};

pub(crate) async fn an_organization_is_stored_whole(home: &mut Home) {
    let tenant = tenant(home.store(), "acme").await;
    home.drop_and_reopen();
    let store = home.store();
    assert_eq!(store.org(tenant.org.id).await.unwrap(), Some(tenant.org.clone()));
    assert_eq!(store.group(tenant.org.id, "default").await.unwrap(), Some(tenant.group.clone()));
    assert_eq!(store.list_groups(tenant.org.id, &first(50)).await.unwrap().items, std::slice::from_ref(&tenant.group));
    let found = store.find_workspace_key(hash("acme workspace")).await.unwrap();
    assert_eq!(found, Some((tenant.workspace_key.clone(), OrgState::Active)));
    let found = store.find_agent_key(hash("acme agent")).await.unwrap();
    assert_eq!(found, Some((tenant.agent_key.clone(), OrgState::Active)));
    assert_eq!(store.find_agent_key(hash("acme workspace")).await.unwrap(), None, "kinds are kept apart");
    assert_eq!(store.find_workspace_key(hash("acme agent")).await.unwrap(), None, "kinds are kept apart");
    let config = store.load_org(tenant.org.id).await.unwrap().expect("it exists");
    assert_eq!((config.org, config.groups), (tenant.org.clone(), vec![tenant.group.clone()]));
    assert!(config.endpoints.is_empty() && config.policies.is_empty());
    assert_eq!(store.load_org(OrgId::from_uuid(uuid())).await.unwrap(), None);
}

async fn create(store: &dyn Store, org: &Org) -> Result<(), StoreError> {
    let key = workspace_key(org.id);
    store.create_org(org, &group("default"), &key, hash(&key.id.to_string()), audit(org.id)).await
}

pub(crate) async fn a_slug_is_never_given_again(home: &mut Home) {
    let store = home.store();
    let one = tenant(store, "acme").await.org;
    let taken = create(store, &org("acme")).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { ref name }) if name == "acme"), "{taken:?}");
    store.delete_org(one.id, T0, audit(one.id)).await.unwrap();
    let taken = create(store, &org("acme")).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { .. })), "{taken:?}");
}

pub(crate) async fn of_fifty_that_want_one_slug_one_gets_it(home: &mut Home) {
    let store = home.store();
    let orgs: Vec<Org> = (0..50).map(|_| org("acme")).collect();
    let results = join_all(orgs.iter().map(|org| create(store, org))).await;
    let won: Vec<usize> = (0..50).filter(|i| results[*i].is_ok()).collect();
    assert_eq!(won.len(), 1);
    let lost = results.iter().filter(|r| matches!(r, Err(StoreError::NameTaken { name }) if name == "acme")).count();
    assert_eq!(lost, 49);
    assert_eq!(store.list_orgs(&first(50)).await.unwrap().items, [orgs[won[0]].clone()]);
}

pub(crate) async fn an_update_compares_versions_and_raises_them(home: &mut Home) {
    let store = home.store();
    let tenant = tenant(store, "acme").await;
    let id = tenant.org.id;

    let changed = Org { name: "New".to_owned(), state: OrgState::Suspended, updated_at: after(1), ..tenant.org };
    let stored = store.update_org(&changed, audit(id)).await.unwrap();
    assert_eq!(stored, Org { version: 2, ..changed.clone() });
    assert!(matches!(store.update_org(&changed, audit(id)).await, Err(StoreError::Stale)));

    let changed = Group { name: "renamed".to_owned(), rules: vec![], updated_at: after(1), ..tenant.group.clone() };
    let stored = store.update_group(id, &changed, audit(id)).await.unwrap();
    assert_eq!(stored, Group { version: 2, ..changed.clone() });
    assert!(matches!(store.update_group(id, &changed, audit(id)).await, Err(StoreError::Stale)));
    assert_eq!(store.group(id, "default").await.unwrap(), None);

    let mut key = tenant.workspace_key.clone();
    key.name = "other".to_owned();
    key.expires_at = None;
    let stored = store.update_workspace_key(&key, audit(id)).await.unwrap();
    assert_eq!((stored.name.as_str(), stored.expires_at, stored.version), ("other", None, 2));
    assert!(matches!(store.update_workspace_key(&key, audit(id)).await, Err(StoreError::Stale)));

    let mut key = tenant.agent_key.clone();
    key.confirms = false;
    key.limits.set("agent_key_per_second", None);
    let stored = store.update_agent_key(&key, audit(id)).await.unwrap();
    key.version = 2;
    assert_eq!(stored, key);
    key.version = 1;
    assert!(matches!(store.update_agent_key(&key, audit(id)).await, Err(StoreError::Stale)));
    assert_eq!(store.list_audit(id, &first(50)).await.unwrap().items.len(), 6, "what failed leaves no trace");
}

pub(crate) async fn nothing_of_another_organization_is_found(home: &mut Home) {
    let store = home.store();
    let (one, endpoint) = tenant_with_endpoint(store, "one").await;
    let run = pending_run(store, &endpoint).await;
    let two = tenant(store, "two").await;
    let other = two.org.id;
    assert_eq!(store.workspace_key(other, one.workspace_key.id).await.unwrap(), None);
    assert_eq!(store.agent_key(other, one.agent_key.id).await.unwrap(), None);
    assert_eq!(store.endpoint(other, endpoint.id).await.unwrap(), None);
    assert_eq!(store.run(other, run.intent.id).await.unwrap(), None);
    assert!(store.declared_tools(other, endpoint.id).await.unwrap().is_empty());
    assert!(store.list_syncs(other, endpoint.id, &first(50)).await.unwrap().items.is_empty());
    assert!(store.open_runs(other).await.unwrap().is_empty());

    let mut foreign_key = one.agent_key.clone();
    foreign_key.org_id = other;
    assert!(matches!(store.update_agent_key(&foreign_key, audit(other)).await, Err(StoreError::NotFound)));
    let mut foreign_key = one.workspace_key.clone();
    foreign_key.org_id = other;
    assert!(matches!(store.update_workspace_key(&foreign_key, audit(other)).await, Err(StoreError::NotFound)));
    assert!(matches!(store.update_group(other, &one.group, audit(other)).await, Err(StoreError::NotFound)));
    let mut foreign_endpoint = endpoint.clone();
    foreign_endpoint.org_id = other;
    let updated = store.update_endpoint(&foreign_endpoint, None, audit(other)).await;
    assert!(matches!(updated, Err(StoreError::NotFound)));
    let id = one.agent_key.id;
    assert!(matches!(store.delete_agent_key(other, id, None, audit(other)).await, Err(StoreError::NotFound)));
    let id = one.workspace_key.id;
    assert!(matches!(store.delete_workspace_key(other, id, None, audit(other)).await, Err(StoreError::NotFound)));
    let deleted = store.delete_endpoint(other, endpoint.id, None, T0, audit(other)).await;
    assert!(matches!(deleted, Err(StoreError::NotFound)));
    assert!(matches!(store.set_sync_due(other, endpoint.id, T0).await, Err(StoreError::NotFound)));
    let mut foreign_run = run.clone();
    foreign_run.intent.org_id = other;
    let outcome = toolgate::domain::run::RunOutcome::completed(json("1"));
    let changed = store.change_run(&change(&foreign_run, outcome)).await;
    assert!(matches!(changed, Err(StoreError::NotFound)));
    let accepted = store.accept_run(other, run.intent.id, "p1", &attempt("answered"), T0).await;
    assert!(matches!(accepted, Err(StoreError::NotFound)));
    assert_eq!(store.run(one.org.id, run.intent.id).await.unwrap(), Some(run));
}

pub(crate) async fn a_key_needs_groups_that_exist(home: &mut Home) {
    let store = home.store();
    let (one, two) = (tenant(store, "one").await, tenant(store, "two").await);
    let id = one.org.id;
    for stranger in [GroupId::from_uuid(uuid()), two.group.id] {
        let key = agent_key(id, vec![one.group.id, stranger]);
        let created = store.create_agent_key(&key, hash("new"), audit(id)).await;
        assert!(matches!(created, Err(StoreError::NotFound)), "{created:?}");
        assert_eq!(store.find_agent_key(hash("new")).await.unwrap(), None, "half a key is no key");
        let mut key = one.agent_key.clone();
        key.groups = vec![stranger];
        assert!(matches!(store.update_agent_key(&key, audit(id)).await, Err(StoreError::NotFound)));
    }
    assert_eq!(store.agent_key(id, one.agent_key.id).await.unwrap(), Some(one.agent_key));
    let stranger = OrgId::from_uuid(uuid());
    let created = store.create_workspace_key(&workspace_key(stranger), hash("lost"), audit(stranger)).await;
    assert!(matches!(created, Err(StoreError::NotFound)), "{created:?}");
}

pub(crate) async fn a_group_stays_while_a_key_belongs_to_it(home: &mut Home) {
    let store = home.store();
    let tenant = tenant(store, "acme").await;
    let id = tenant.org.id;
    let spare = group("spare");
    store.create_group(id, &spare, audit(id)).await.unwrap();
    let taken = store.create_group(id, &group("spare"), audit(id)).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { ref name }) if name == "spare"));
    let taken = store.update_group(id, &Group { name: "default".to_owned(), ..spare.clone() }, audit(id)).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { ref name }) if name == "default"));

    assert!(matches!(store.delete_group(id, "default", None, audit(id)).await, Err(StoreError::InUse)));
    assert!(matches!(store.delete_group(id, "none", None, audit(id)).await, Err(StoreError::NotFound)));
    assert!(matches!(store.delete_group(id, "spare", Some(9), audit(id)).await, Err(StoreError::Stale)));
    store.delete_group(id, "spare", Some(1), audit(id)).await.unwrap();
    store.delete_agent_key(id, tenant.agent_key.id, None, audit(id)).await.unwrap();
    store.delete_group(id, "default", None, audit(id)).await.unwrap();
    assert!(store.list_groups(id, &first(50)).await.unwrap().items.is_empty());
}

pub(crate) async fn a_revoked_key_is_gone_at_once(home: &mut Home) {
    let store = home.store();
    let tenant = tenant(store, "acme").await;
    let (id, key) = (tenant.org.id, tenant.agent_key.id);
    assert!(matches!(store.delete_agent_key(id, key, Some(2), audit(id)).await, Err(StoreError::Stale)));
    store.delete_agent_key(id, key, Some(1), audit(id)).await.unwrap();
    assert_eq!(store.find_agent_key(hash("acme agent")).await.unwrap(), None);
    assert_eq!(store.agent_key(id, key).await.unwrap(), None);
    assert!(matches!(store.delete_agent_key(id, key, None, audit(id)).await, Err(StoreError::NotFound)));

    let second = workspace_key(id);
    store.create_workspace_key(&second, hash("second"), audit(id)).await.unwrap();
    let listed = store.list_workspace_keys(id, &first(50)).await.unwrap().items;
    assert_eq!(listed, [tenant.workspace_key.clone(), second]);
    store.delete_workspace_key(id, tenant.workspace_key.id, None, audit(id)).await.unwrap();
    assert_eq!(store.find_workspace_key(hash("acme workspace")).await.unwrap(), None);
}

pub(crate) async fn keys_say_what_state_their_organization_is_in(home: &mut Home) {
    let store = home.store();
    let tenant = tenant(store, "acme").await;
    let suspended = Org { state: OrgState::Suspended, ..tenant.org };
    store.update_org(&suspended, audit(suspended.id)).await.unwrap();
    let found = store.find_agent_key(hash("acme agent")).await.unwrap().expect("found");
    assert_eq!(found.1, OrgState::Suspended);
    let found = store.find_workspace_key(hash("acme workspace")).await.unwrap().expect("found");
    assert_eq!(found.1, OrgState::Suspended);
}

pub(crate) async fn the_last_use_of_a_key_is_noted_to_the_minute(home: &mut Home) {
    let tenant = tenant(home.store(), "acme").await;
    let id = tenant.org.id;
    let minute = |n: i64| Timestamp::from_millis(T0.as_millis() + n * 60_000);
    home.store().touch_keys(vec![(tenant.agent_key.id, after(125_000)), (tenant.workspace_key.id, after(1))]);
    home.store().touch_keys(vec![(tenant.agent_key.id, after(65_000))]);
    home.restart().await;
    let key = home.store().agent_key(id, tenant.agent_key.id).await.unwrap().expect("it exists");
    assert_eq!(key.last_used_at, Some(minute(2)), "an older use does not take a newer one back");
    assert_eq!(key.version, 1);
    let key = home.store().workspace_key(id, tenant.workspace_key.id).await.unwrap().expect("it exists");
    assert_eq!(key.last_used_at, Some(minute(0)));
}

pub(crate) async fn a_deleted_organization_leaves_its_slug_alone(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    apply_tools(store, &endpoint, &["weather-report"]).await;
    store.put_policy(id, "weather-report", &PolicyChange::default(), audit(id)).await.unwrap();
    store.set_sync_due(id, endpoint.id, T0).await.unwrap();
    let open = pending_run(store, &endpoint).await;
    store.insert_run(&finished_run(&endpoint, T0), Admission::default()).await.unwrap();
    let before = store.changes_since(0).await.unwrap().position;

    assert_eq!(store.delete_org(id, after(1), audit(id)).await.unwrap(), [open.intent.id]);
    assert_eq!(store.org(id).await.unwrap(), None);
    assert_eq!(store.load_org(id).await.unwrap(), None);
    assert!(store.list_orgs(&first(50)).await.unwrap().items.is_empty());
    assert_eq!(store.find_agent_key(hash("acme agent")).await.unwrap(), None);
    assert_eq!(store.find_workspace_key(hash("acme workspace")).await.unwrap(), None);
    assert_eq!(store.endpoint_org(endpoint.id).await.unwrap(), None);
    assert!(store.list_groups(id, &first(50)).await.unwrap().items.is_empty());
    assert_eq!(store.run(id, open.intent.id).await.unwrap(), None);
    assert!(store.usage(id, T0, after(10)).await.unwrap().is_empty());
    assert_eq!(store.list_audit(id, &first(50)).await.unwrap().items.len(), 1, "only that it was deleted");
    assert!(store.take_due(after(10_000_000), HOUR, 10).await.unwrap().is_empty());
    assert_eq!(store.changes_since(before).await.unwrap().orgs, [id]);
    assert!(matches!(store.delete_org(id, T0, audit(id)).await, Err(StoreError::NotFound)));
    assert!(matches!(store.update_org(&tenant.org, audit(id)).await, Err(StoreError::NotFound)));
    let created = store.create_group(id, &group("late"), audit(id)).await;
    assert!(matches!(created, Err(StoreError::NotFound)));
    assert!(matches!(store.insert_run(&run_at(&endpoint, T0), Admission::default()).await, Err(StoreError::NotFound)));
    assert!(store.record_later(std::sync::Arc::new(finished_run(&endpoint, T0)), false));
    home.restart().await;
    assert!(home.store().usage(id, T0, after(10)).await.unwrap().is_empty(), "no record comes after the end");
}

pub(crate) async fn lists_come_in_parts_that_neither_repeat_nor_miss(home: &mut Home) {
    let store = home.store();
    let mut slugs = Vec::new();
    for number in 0..7 {
        slugs.push(tenant(store, &format!("org-{number}")).await.org.slug);
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.list_orgs(&PageRequest { limit: 3, cursor }).await.unwrap();
        assert!(page.items.len() <= 3);
        seen.extend(page.items.into_iter().map(|org| org.slug));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, slugs);
    assert_eq!(store.list_orgs(&first(7)).await.unwrap().next_cursor, None, "an exact fit has no next part");
    for bad in ["!", "AAAA", ""] {
        let page = PageRequest { limit: 3, cursor: Some(bad.to_owned()) };
        assert!(matches!(store.list_orgs(&page).await, Err(StoreError::BadCursor)), "{bad}");
    }
}

pub(crate) async fn the_feed_names_each_changed_organization_once(home: &mut Home) {
    let store = home.store();
    let (one, two) = (tenant(store, "one").await, tenant(store, "two").await);
    let start = store.changes_since(0).await.unwrap();
    assert_eq!(start.orgs.len(), 2);
    assert!(store.changes_since(start.position).await.unwrap().orgs.is_empty());
    for name in ["a", "b"] {
        store.create_group(two.org.id, &group(name), audit(two.org.id)).await.unwrap();
    }
    let next = store.changes_since(start.position).await.unwrap();
    assert_eq!(next.orgs, [two.org.id]);
    assert!(next.position > start.position);
    store.delete_agent_key(one.org.id, one.agent_key.id, None, audit(one.org.id)).await.unwrap();
    assert_eq!(store.changes_since(next.position).await.unwrap().orgs, [one.org.id], "keys count too");
}

pub(crate) async fn whoever_missed_the_feed_is_told_of_everything(home: &mut Home) {
    let store = home.store();
    let (one, two) = (tenant(store, "one").await, tenant(store, "two").await);
    let position = store.changes_since(0).await.unwrap().position;
    let late = T0.plus(2 * HOUR);
    store.create_group(two.org.id, &group("a"), audit(two.org.id)).await.unwrap();
    store.create_group(two.org.id, &group("b"), audit_at(two.org.id, late)).await.unwrap();
    store.purge(late).await.unwrap();
    let all = store.changes_since(position).await.unwrap();
    assert_eq!(all.orgs.len(), 2, "one of the changes since is purged: {all:?}");
    let seen = store.changes_since(position + 1).await.unwrap();
    assert_eq!(seen.orgs, [two.org.id], "nothing was missed from here");
    // A clock that was set back leaves no hole behind.
    store.create_group(one.org.id, &group("c"), audit(one.org.id)).await.unwrap();
    store.purge(late).await.unwrap();
    assert_eq!(store.changes_since(position + 2).await.unwrap().orgs, [one.org.id]);
    store.purge(late.plus(2 * HOUR)).await.unwrap();
    assert_eq!(store.changes_since(position).await.unwrap().orgs.len(), 2, "also when the feed is empty");
    let now = store.changes_since(position + 3).await.unwrap();
    assert_eq!((now.position, now.orgs.len()), (position + 3, 0));
}

pub(crate) async fn the_audit_trail_is_newest_first(home: &mut Home) {
    let store = home.store();
    let tenant = tenant(store, "acme").await;
    let id = tenant.org.id;
    let newer = audit_at(id, after(9));
    store.create_group(id, &group("a"), newer.clone()).await.unwrap();
    let older = audit_at(id, after(5));
    store.create_group(id, &group("b"), older.clone()).await.unwrap();
    let page = store.list_audit(id, &first(2)).await.unwrap();
    assert_eq!(page.items, [newer, older]);
    let rest = store.list_audit(id, &PageRequest { limit: 50, cursor: page.next_cursor }).await.unwrap();
    assert_eq!((rest.items.len(), rest.next_cursor), (2, None));
}

pub(crate) async fn only_the_configuration_raises_the_revision(home: &mut Home) {
    let store = home.store();
    let (tenant, endpoint) = tenant_with_endpoint(store, "acme").await;
    let id = tenant.org.id;
    let revision = async || store.load_org(id).await.unwrap().expect("it exists").revision;
    let mut last = revision().await;
    store.delete_agent_key(id, tenant.agent_key.id, None, audit(id)).await.unwrap();
    store.finish_sync(&sync_end(&endpoint, None)).await.unwrap();
    pending_run(store, &endpoint).await;
    assert_eq!(revision().await, last, "keys, syncs without a new set and runs do not");

    let mut raised = async |what: &str| {
        last += 1;
        assert_eq!(revision().await, last, "{what}");
    };
    store.create_group(id, &group("a"), audit(id)).await.unwrap();
    raised("a group").await;
    apply_tools(store, &endpoint, &["a"]).await;
    raised("a set").await;
    let mut end = sync_end(&endpoint, None);
    end.state.protocol_version = Some("2025-11-25".to_owned());
    for _ in 0..2 {
        end.record.id = SyncId::from_uuid(uuid());
        store.finish_sync(&end).await.unwrap();
    }
    raised("another revision of a protocol").await;
    store.put_policy(id, "a", &PolicyChange::default(), audit(id)).await.unwrap();
    raised("a policy").await;
    store.update_endpoint(&endpoint, None, audit(id)).await.unwrap();
    raised("an endpoint").await;
    store.update_org(&tenant.org, audit(id)).await.unwrap();
    raised("the organization").await;
    assert!(matches!(store.update_org(&tenant.org, audit(id)).await, Err(StoreError::Stale)));
    assert_eq!(revision().await, last, "what failed does not");
}

pub(crate) async fn a_failing_change_takes_nobody_with_it(home: &mut Home) {
    let store = home.store();
    let id = tenant(store, "acme").await.org.id;
    let groups: Vec<Group> = (0..100).map(|n| group(&format!("g{}", n % 90))).collect();
    let results = join_all(groups.iter().map(|group| store.create_group(id, group, audit(id)))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 90);
    assert_eq!(store.list_groups(id, &first(200)).await.unwrap().items.len(), 91);
    assert_eq!(store.list_audit(id, &first(200)).await.unwrap().items.len(), 92, "one entry for each that was done");
}

pub(crate) async fn the_store_tells_about_itself(home: &mut Home) {
    let store = home.store();
    store.ping().await.unwrap();
    let tenant = tenant(store, "acme").await;
    let status = store.status().await.unwrap();
    assert_eq!((status.queue_depth, status.orgs), (0, 1));
    assert!(status.migration >= 1);
    store.delete_org(tenant.org.id, T0, audit(tenant.org.id)).await.unwrap();
    assert_eq!(store.status().await.unwrap().orgs, 0);
    store.close().await;
    assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.org(tenant.org.id).await, Err(StoreError::Unavailable(_))));
    store.close().await;
}
