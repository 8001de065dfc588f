//! Actors on a real store: what a panic, a flood or a dead thread does to one organization and not to the others.

use super::org_handle::TurnFault;
use super::registry::{Registry, RegistryFault};
use crate::adapters::metrics::PrometheusMetrics;
use crate::adapters::secrets::SecretBox;
use crate::adapters::store::sqlite::{SqliteOptions, SqliteStore};
use crate::domain::group::Group;
use crate::domain::ids::{AuditId, EndpointId, GroupId, KeyId, OrgId, RunId};
use crate::domain::json::JsonText;
use crate::domain::key::{self, WorkspaceKey};
use crate::domain::org::{ConfirmationFallback, LimitOverrides, Org, OrgState, Retention};
use crate::domain::run::{CallContext, Run, RunIntent, RunOutcome, RunStatus};
use crate::domain::tool::{Dialect, ToolKind};
use crate::engine::ports::{Clock, Store};
use crate::engine::settings::EngineSettings;
use crate::engine::store_port::AuditEntry;
use crate::engine::test_clock::TestClock;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

struct World {
    registry: Arc<Registry>,
    store: Arc<dyn Store>,
    clock: Arc<TestClock>,
    _folder: tempfile::TempDir,
}

fn in_a_system<F: Future<Output = ()>>(settings: EngineSettings, test: impl FnOnce(World) -> F) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = SqliteStore::open(folder.path(), SecretBox::new([1; 32], None), SqliteOptions::default());
    let store: Arc<dyn Store> = Arc::new(store.expect("it opens"));
    let clock = TestClock::new();
    actix::System::new().block_on(async move {
        let metrics = Arc::new(PrometheusMetrics::new(10, 10));
        let settings = Arc::new(settings);
        let ports_clock: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let registry = Arc::new(Registry::start(Arc::clone(&store), ports_clock, metrics, settings));
        test(World { registry, store, clock, _folder: folder }).await;
    });
}

impl World {
    async fn add_org(&self, slug: &str) -> OrgId {
        let id = OrgId::from_uuid(self.clock.new_uuid());
        let at = self.clock.now();
        let org = Org {
            id,
            slug: slug.to_owned(),
            name: slug.to_owned(),
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
        let group_id = GroupId::from_uuid(self.clock.new_uuid());
        let group = Group {
            id: group_id,
            name: "default".to_owned(),
            rules: vec![],
            version: 1,
            created_at: at,
            updated_at: at,
        };
        let key = WorkspaceKey {
            id: KeyId::from_uuid(self.clock.new_uuid()),
            org_id: id,
            name: "first".to_owned(),
            expires_at: None,
            last_used_at: None,
            version: 1,
            created_at: at,
            updated_at: at,
        };
        let audit = AuditEntry {
            id: AuditId::from_uuid(self.clock.new_uuid()),
            org_id: id,
            at,
            actor_kind: "operator".to_owned(),
            actor_id: String::new(),
            actor_name: String::new(),
            action: "org.create".to_owned(),
            object: String::new(),
            changes: JsonText::of(&serde_json::json!({})),
            from: String::new(),
            write: None,
        };
        self.store.create_org(&org, &group, &key, key::hash(slug), audit).await.expect("stored");
        id
    }

    fn run_of(&self, org: OrgId) -> Arc<Run> {
        let at = self.clock.now();
        let intent = RunIntent {
            id: RunId::from_uuid(self.clock.new_uuid()),
            org_id: org,
            agent_key: KeyId::from_uuid(self.clock.new_uuid()),
            endpoint_id: EndpointId::from_uuid(self.clock.new_uuid()),
            endpoint_name: "weather".to_owned(),
            dialect: Dialect::Topology,
            tool: "report".to_owned(),
            kind: ToolKind::Query,
            llm_format: false,
            tool_hash: String::new(),
            request_id: None,
            caller: None,
            keyed: false,
            confirmed: false,
            context: CallContext::default(),
            arguments_sent: JsonText::of(&serde_json::json!({})),
            arguments_coerced: None,
            created_at: at,
            expires_at: None,
        };
        let outcome = RunOutcome::bare(RunStatus::Pending, true);
        Arc::new(Run {
            intent,
            outcome,
            provider_correlation_id: None,
            withheld_result: None,
            operation_id: None,
            attempts: Vec::new(),
            updated_at: at,
            finished_at: None,
        })
    }
}

#[test]
fn a_panic_restarts_one_organization_and_leaves_the_others_alone() {
    in_a_system(EngineSettings::default(), async |world| {
        let (hurt, well) = (world.add_org("hurt").await, world.add_org("well").await);
        let before = world.registry.get(hurt).await.expect("it starts");
        let other = world.registry.get(well).await.expect("it starts");
        let mut waiter = before.admit(world.run_of(hurt)).await.expect("admitted");
        let kept = other.admit(world.run_of(well)).await.expect("admitted");

        assert_eq!(before.panic().await, Err(TurnFault::Gone));
        assert!(waiter.changed().await.is_err(), "whoever waited is told that the actor is gone");
        let after = world.registry.get(hurt).await.expect("a fresh one starts");
        assert_eq!(
            after.summary().await.map(|summary| summary.open.pending),
            Ok(0),
            "from the store, not from the wreck"
        );
        assert_eq!(other.summary().await.map(|summary| (summary.open.pending, summary.waited_for)), Ok((1, 1)));
        drop(kept);
    });
}

#[test]
fn a_dead_thread_is_replaced_and_its_organizations_start_again() {
    in_a_system(EngineSettings { actor_threads: 2, ..EngineSettings::default() }, async |world| {
        let org = world.add_org("acme").await;
        let before = world.registry.get(org).await.expect("it starts");
        world.registry.stop_thread_of(org);
        while before.summary().await != Err(TurnFault::Gone) {
            tokio::task::yield_now().await;
        }
        let after = world.registry.get(org).await.expect("it starts on another thread");
        assert!(after.summary().await.is_ok());
        world.registry.sweep();
        let settled = world.registry.get(org).await.expect("it lives");
        assert!(settled.summary().await.is_ok());
    });
}

#[test]
fn a_full_mailbox_is_an_answer_and_touches_no_other_organization() {
    let settings = EngineSettings { mailbox_capacity: 4, actor_threads: 2, ..EngineSettings::default() };
    in_a_system(settings, async |world| {
        let flooded = world.add_org("flooded").await;
        let handle = world.registry.get(flooded).await.expect("it starts");
        let (open, gate) = mpsc::channel();
        let blocked = tokio::task::spawn_local({
            let handle = handle.clone();
            async move { handle.block(gate).await }
        });
        tokio::task::yield_now().await;
        let mut waiting = Vec::new();
        for _ in 0..64 {
            let handle = handle.clone();
            waiting.push(tokio::task::spawn_local(async move { handle.summary().await }));
            tokio::task::yield_now().await;
        }
        assert!(handle.mailbox_depth() <= 64);
        open.send(()).expect("the actor waits");
        let mut refused = 0;
        for turn in waiting {
            match turn.await.expect("no panic") {
                Ok(_) => {}
                Err(TurnFault::Overloaded) => refused += 1,
                Err(TurnFault::Gone) => panic!("a flood ends no actor"),
            }
        }
        assert!(refused > 0, "a mailbox of four took everything");
        assert_eq!(blocked.await.expect("no panic"), Ok(()));
        assert_eq!((handle.mailbox_depth(), world.registry.mailbox_depth()), (0, 0), "every turn is counted out again");
    });
}

#[test]
fn fifty_who_ask_at_once_share_one_start() {
    in_a_system(EngineSettings::default(), async |world| {
        let org = world.add_org("acme").await;
        let asking: Vec<_> = (0..50)
            .map(|_| {
                let registry = Arc::clone(&world.registry);
                tokio::task::spawn_local(async move { registry.get(org).await.map(|handle| handle.catalog()) })
            })
            .collect();
        let mut catalogs = Vec::new();
        for asked in asking {
            catalogs.push(asked.await.expect("no panic").expect("it starts"));
        }
        assert!(catalogs.iter().all(|catalog| Arc::ptr_eq(catalog, &catalogs[0])));
        assert_eq!(world.registry.count(), 1);
    });
}

#[test]
fn an_idle_organization_leaves_and_comes_back() {
    in_a_system(EngineSettings { actor_idle: Duration::ZERO, ..EngineSettings::default() }, async |world| {
        let org = world.add_org("acme").await;
        let handle = world.registry.get(org).await.expect("it starts");
        world.registry.sweep();
        assert_eq!(world.registry.count(), 0);
        while handle.summary().await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(world.registry.get(org).await.expect("it starts again").summary().await.is_ok());
        let nobody = OrgId::from_uuid(world.clock.new_uuid());
        assert!(matches!(world.registry.get(nobody).await, Err(RegistryFault::NotFound)));
        assert_eq!(world.registry.count(), 1, "what does not exist takes no room");
    });
}
