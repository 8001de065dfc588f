//! Keys: who is asking, and proof of it.
//!
//! The access values have private fields and are made here only, so a function that takes one cannot be reached without
//! a good key. **Invariant:** a cached yes counts only while the store answered less than a second ago; otherwise the
//! store is asked again, and when it does not answer, that is a 503, never a yes.

use super::Engine;
use super::actors::org_handle::OrgHandle;
use super::actors::registry::RegistryFault;
use super::catalog::Catalog;
use super::org::rate_limits::{RateRefusal, RateStatus};
use super::ports::StoreError;
use super::store_port::WriteId;
use crate::domain::ids::{KeyId, OrgId};
use crate::domain::key::{self, AgentKey, KeyHash, KeyKind, WorkspaceKey};
use crate::domain::org::OrgState;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use dashmap::DashMap;
use moka::sync::Cache;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a key opens nothing.
#[derive(Debug, thiserror::Error)]
pub enum AccessFault {
    /// Missing, wrong, revoked, expired, or of another kind: never said which.
    #[error("the key is not accepted")]
    Unauthorized,
    /// The organization is suspended.
    #[error("the organization is suspended")]
    Suspended,
    /// The key cannot be checked now.
    #[error("the key cannot be checked")]
    Store(#[source] StoreError),
}

/// An agent, with its organization at hand.
#[derive(Clone)]
pub struct AgentAccess {
    key: Arc<AgentKey>,
    org: OrgHandle,
    catalog: Arc<Catalog>,
}

impl AgentAccess {
    /// The agent key.
    pub fn key(&self) -> &AgentKey {
        &self.key
    }

    /// The organization's snapshot that this request works with from beginning to end.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The same access with the newest snapshot.
    pub(super) fn renewed(self) -> Self {
        let catalog = self.org.catalog();
        Self { catalog, ..self }
    }

    pub(super) fn org(&self) -> &OrgHandle {
        &self.org
    }

    /// Tells whenever something of the organization has changed; ends when the organization leaves this node or starts anew.
    /// While somebody listens it is not let go for being idle.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.org.changes()
    }

    /// Charges one request to the agent key's limit.
    pub fn charge(&self) -> Result<RateStatus, (RateRefusal, RateStatus)> {
        self.org.rates().charge_agent_key(self.key.id, &self.catalog.limits, &self.key.limits)
    }
}

/// A tenant's administrator or application.
#[derive(Clone, Debug)]
pub struct WorkspaceAccess {
    key: Arc<WorkspaceKey>,
    from: String,
    write: Option<WriteId>,
}

impl WorkspaceAccess {
    /// The organization.
    pub fn org_id(&self) -> OrgId {
        self.key.org_id
    }

    /// The workspace key.
    pub fn key(&self) -> &WorkspaceKey {
        &self.key
    }

    /// Peer address the request came from.
    pub fn from(&self) -> &str {
        &self.from
    }

    /// The reserved write that this access is used for, if it is one.
    pub fn write(&self) -> Option<&WriteId> {
        self.write.as_ref()
    }

    /// This access, for a write that was reserved: whatever it changes counts as made with the change itself.
    pub fn for_write(self, write: WriteId) -> Self {
        Self { write: Some(write), ..self }
    }
}

/// Who hosts this toolgate.
#[derive(Clone, Debug)]
pub struct OperatorAccess {
    from: String,
    write: Option<WriteId>,
}

impl OperatorAccess {
    /// Peer address the request came from.
    pub fn from(&self) -> &str {
        &self.from
    }

    /// The reserved write that this access is used for, if it is one.
    pub fn write(&self) -> Option<&WriteId> {
        self.write.as_ref()
    }

    /// This access, for a write that was reserved: whatever it changes counts as made with the change itself.
    pub fn for_write(self, write: WriteId) -> Self {
        Self { write: Some(write), ..self }
    }
}

const FRESH_FOR: Duration = Duration::from_secs(1);
const CACHED_KEYS: u64 = 100_000;
const CACHED_FOR: Duration = Duration::from_secs(600);

struct CachedKey<K> {
    key: Arc<K>,
    state: OrgState,
    /// The organization's generation when the key was read.
    generation: u64,
    last_used_minute: AtomicI64,
}

/// A key as it was just read.
struct Read<K> {
    org: OrgId,
    key: K,
    state: OrgState,
    epoch: u64,
}

/// What is remembered about keys.
pub(super) struct AccessCache {
    operator: Vec<KeyHash>,
    agents: Cache<KeyHash, Arc<CachedKey<AgentKey>>>,
    workspaces: Cache<KeyHash, Arc<CachedKey<WorkspaceKey>>>,
    /// Raised when anything of an organization changes: what was read before counts no more.
    generations: DashMap<OrgId, u64>,
    /// Raised before any generation: a read that it changed under is not remembered.
    epoch: AtomicU64,
    /// Position in the store's change feed, once it was looked at.
    position: Mutex<Option<u64>>,
    base: Instant,
    /// Nanoseconds after `base` of the last question that the store has answered; 0 is none yet.
    last_answer_ns: AtomicU64,
    /// When an agent of an organization last called, to the minute.
    last_calls: DashMap<OrgId, Timestamp>,
}

impl AccessCache {
    pub(super) fn new(operator_tokens: &[Secret]) -> Self {
        Self {
            operator: operator_tokens.iter().map(|token| key::hash(token.reveal())).collect(),
            agents: Cache::builder().max_capacity(CACHED_KEYS).time_to_idle(CACHED_FOR).build(),
            workspaces: Cache::builder().max_capacity(CACHED_KEYS).time_to_idle(CACHED_FOR).build(),
            generations: DashMap::new(),
            epoch: AtomicU64::new(0),
            position: Mutex::new(None),
            base: Instant::now(),
            last_answer_ns: AtomicU64::new(0),
            last_calls: DashMap::new(),
        }
    }

    /// Nothing read before counts any more for this organization.
    pub(super) fn invalidate(&self, org: OrgId) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        *self.generations.entry(org).or_insert(0) += 1;
    }

    /// When an agent of the organization last called this node.
    pub(super) fn last_call(&self, org: OrgId) -> Option<Timestamp> {
        self.last_calls.get(&org).map(|at| *at)
    }

    fn generation(&self, org: OrgId) -> u64 {
        self.generations.get(&org).map_or(0, |generation| *generation)
    }

    fn store_answered(&self, asked: Instant) {
        self.last_answer_ns.fetch_max(self.nanos_at(asked).max(1), Ordering::Relaxed);
    }

    fn is_fresh(&self) -> bool {
        let last = self.last_answer_ns.load(Ordering::Relaxed);
        last > 0 && u128::from(self.nanos_at(Instant::now()).saturating_sub(last)) < FRESH_FOR.as_nanos()
    }

    fn nanos_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Remembers a key that was read after `epoch` was taken, unless something changed meanwhile: the generation is taken
    /// before the second look at the epoch, and invalidating raises them in the other order.
    fn remember<K>(&self, into: &Cache<KeyHash, Arc<CachedKey<K>>>, hash: KeyHash, read: Read<K>) -> Arc<CachedKey<K>>
    where
        K: Send + Sync + 'static,
    {
        let Read { org, key, state, epoch } = read;
        let generation = self.generation(org);
        let last_used_minute = AtomicI64::new(i64::MIN);
        let cached = Arc::new(CachedKey { key: Arc::new(key), state, generation, last_used_minute });
        if self.epoch.load(Ordering::SeqCst) == epoch {
            into.insert(hash, Arc::clone(&cached));
        }
        cached
    }

    /// A cached key that may be believed.
    fn believe<K>(&self, cached: &CachedKey<K>, org: OrgId) -> bool {
        self.is_fresh() && cached.generation == self.generation(org)
    }
}

impl Engine {
    /// Checks an agent key and brings its organization.
    pub async fn agent_access(&self, text: &str) -> Result<AgentAccess, AccessFault> {
        let hash = recognise(text, KeyKind::Agent)?;
        let cached = self.cached_agent(hash).await?;
        self.check(cached.state, cached.key.expires_at)?;
        if self.touch(cached.key.id, &cached.last_used_minute) {
            self.0.access.last_calls.insert(cached.key.org_id, self.clock().now());
        }
        let org = self.0.registry.get(cached.key.org_id).await.map_err(|fault| match fault {
            RegistryFault::NotFound => AccessFault::Unauthorized,
            RegistryFault::Store(error) => AccessFault::Store(error),
        })?;
        Ok(AgentAccess { key: Arc::clone(&cached.key), catalog: org.catalog(), org })
    }

    /// Checks a workspace key; `from` is the peer address, for the audit trail.
    pub async fn workspace_access(&self, text: &str, from: &str) -> Result<WorkspaceAccess, AccessFault> {
        let hash = recognise(text, KeyKind::Workspace)?;
        let cached = self.cached_workspace(hash).await?;
        self.check(cached.state, cached.key.expires_at)?;
        self.touch(cached.key.id, &cached.last_used_minute);
        Ok(WorkspaceAccess { key: Arc::clone(&cached.key), from: from.to_owned(), write: None })
    }

    /// Checks the operator token.
    pub fn operator_access(&self, text: &str, from: &str) -> Result<OperatorAccess, AccessFault> {
        let hash = recognise(text, KeyKind::Operator)?;
        if self.0.access.operator.contains(&hash) {
            Ok(OperatorAccess { from: from.to_owned(), write: None })
        } else {
            Err(AccessFault::Unauthorized)
        }
    }

    async fn cached_agent(&self, hash: KeyHash) -> Result<Arc<CachedKey<AgentKey>>, AccessFault> {
        let access = &self.0.access;
        if let Some(cached) = access.agents.get(&hash).filter(|cached| access.believe(cached, cached.key.org_id)) {
            return Ok(cached);
        }
        let (asked, epoch) = (Instant::now(), access.epoch.load(Ordering::SeqCst));
        let found = self.store().find_agent_key(hash).await.map_err(AccessFault::Store)?;
        access.store_answered(asked);
        let Some((key, state)) = found else {
            access.agents.invalidate(&hash);
            return Err(AccessFault::Unauthorized);
        };
        Ok(access.remember(&access.agents, hash, Read { org: key.org_id, key, state, epoch }))
    }

    async fn cached_workspace(&self, hash: KeyHash) -> Result<Arc<CachedKey<WorkspaceKey>>, AccessFault> {
        let access = &self.0.access;
        let believed = |cached: &Arc<CachedKey<WorkspaceKey>>| access.believe(cached, cached.key.org_id);
        if let Some(cached) = access.workspaces.get(&hash).filter(believed) {
            return Ok(cached);
        }
        let (asked, epoch) = (Instant::now(), access.epoch.load(Ordering::SeqCst));
        let found = self.store().find_workspace_key(hash).await.map_err(AccessFault::Store)?;
        access.store_answered(asked);
        let Some((key, state)) = found else {
            access.workspaces.invalidate(&hash);
            return Err(AccessFault::Unauthorized);
        };
        Ok(access.remember(&access.workspaces, hash, Read { org: key.org_id, key, state, epoch }))
    }

    fn check(&self, state: OrgState, expires_at: Option<Timestamp>) -> Result<(), AccessFault> {
        if state == OrgState::Deleted || expires_at.is_some_and(|at| at <= self.clock().now()) {
            return Err(AccessFault::Unauthorized);
        }
        match state {
            OrgState::Suspended => Err(AccessFault::Suspended),
            OrgState::Active | OrgState::Deleted => Ok(()),
        }
    }

    /// Notes the use of a key, once a minute; true when it did.
    fn touch(&self, key: KeyId, last_used_minute: &AtomicI64) -> bool {
        let minute = self.clock().now().to_minute();
        let is_new = last_used_minute.swap(minute.as_millis(), Ordering::Relaxed) != minute.as_millis();
        if is_new {
            self.store().touch_keys(vec![(key, minute)]);
        }
        is_new
    }

    /// Takes up what changed in the store, on this node or another: keys count anew, live organizations are refreshed.
    /// The position moves on only when all of them were: the feed tells again of what was missed.
    pub(super) async fn follow_changes(&self) -> Result<(), StoreError> {
        let access = &self.0.access;
        let asked = Instant::now();
        let position = *access.position.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.store().changes_since(position.unwrap_or_default()).await?;
        // Before the first look nothing was read that could have changed.
        let changed = if position.is_some() { changes.orgs } else { Vec::new() };
        changed.iter().for_each(|org| access.invalidate(*org));
        access.store_answered(asked);
        for org in changed {
            self.0.registry.refresh(org).await?;
        }
        *access.position.lock().unwrap_or_else(PoisonError::into_inner) = Some(changes.position);
        Ok(())
    }

    /// Takes up a change this node has just made, before it is answered.
    pub(super) async fn changed(&self, org: OrgId) -> Result<(), StoreError> {
        self.0.access.invalidate(org);
        self.0.registry.refresh(org).await?;
        self.keep_listening(org);
        Ok(())
    }
}

fn recognise(text: &str, wanted: KeyKind) -> Result<KeyHash, AccessFault> {
    match key::recognise(text) {
        Some((kind, hash)) if kind == wanted => Ok(hash),
        _ => Err(AccessFault::Unauthorized),
    }
}
