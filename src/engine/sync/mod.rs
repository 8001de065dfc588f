//! Manifest sync: fetch, check, compare, decide, store, publish. The last good set stays whatever happens.
//!
//! **Invariant:** a failed fetch is never an empty manifest. **Invariant:** a set is stored only on the revision of the
//! catalog it was decided on; when another change came first, the decision is made anew.

mod decide;
mod fetch;
mod schedule;

use super::Engine;
use super::access::AgentAccess;
use super::ports::StoreError;
use super::store_port::SyncRecord;
use crate::domain::endpoint::{Endpoint, SyncState};
use crate::domain::ids::{EndpointId, OrgId, SyncId};
use crate::domain::manifest::{Manifest, SyncOutcome, SyncTrigger};
use crate::domain::org::OrgState;
use dashmap::DashMap;
use decide::Stamp;
use fetch::Fetched;
use schedule::{is_backing_off, is_recent};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a sync could not even be tried or recorded.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// There is no such endpoint.
    #[error("there is no such endpoint")]
    NotFound,
    /// The endpoint is switched off, or its organization suspended.
    #[error("the endpoint is not enabled")]
    Disabled,
    /// The endpoint was synced a moment ago, or rests after a failure.
    #[error("the endpoint is not due")]
    NotDue,
    /// The settings changed while the manifest was fetched.
    #[error("the settings changed meanwhile")]
    SettingsChanged,
    /// The store does not answer.
    #[error("the store does not answer")]
    Store(#[source] Arc<StoreError>),
}

impl Clone for SyncError {
    fn clone(&self) -> Self {
        match self {
            SyncError::NotFound => SyncError::NotFound,
            SyncError::Disabled => SyncError::Disabled,
            SyncError::NotDue => SyncError::NotDue,
            SyncError::SettingsChanged => SyncError::SettingsChanged,
            SyncError::Store(error) => SyncError::Store(Arc::clone(error)),
        }
    }
}

impl From<StoreError> for SyncError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => SyncError::NotFound,
            other => SyncError::Store(Arc::new(other)),
        }
    }
}

type SyncResult = Result<Arc<SyncRecord>, SyncError>;

/// Syncs under way: whoever wants one that is under way shares it.
#[derive(Default)]
pub(super) struct SingleFlight {
    under_way: DashMap<EndpointId, watch::Receiver<Option<SyncResult>>>,
}

/// A sync begins again this often when its settings keep changing.
const MAX_OVERTAKEN: usize = 16;

/// A new conversation waits for its syncs no longer.
const CONVERSATION_WAIT: Duration = Duration::from_secs(2);

impl Engine {
    /// Syncs one endpoint and waits for the end. Runs in a task of its own, shared by all who ask meanwhile.
    pub(super) async fn sync_endpoint(&self, org: OrgId, endpoint: EndpointId, trigger: SyncTrigger) -> SyncResult {
        let mut result = self.start_sync(org, endpoint, trigger);
        let ended = result.wait_for(Option::is_some).await.map(|result| result.clone());
        match ended {
            Ok(Some(result)) => result,
            // The task ended without a word: it panicked, and the next one may do better.
            Ok(None) | Err(_) => Err(StoreError::Unavailable("the sync was cut off".into()).into()),
        }
    }

    /// Waits for the sync of an endpoint that is under way, if one is.
    pub(super) async fn sync_under_way(&self, endpoint: EndpointId) {
        let under_way = self.0.syncs.under_way.get(&endpoint).map(|entry| entry.clone());
        if let Some(mut result) = under_way {
            let _ = result.wait_for(Option::is_some).await;
        }
    }

    fn start_sync(
        &self,
        org: OrgId,
        endpoint: EndpointId,
        trigger: SyncTrigger,
    ) -> watch::Receiver<Option<SyncResult>> {
        let entry = self.0.syncs.under_way.entry(endpoint);
        match entry {
            dashmap::Entry::Occupied(entry) => entry.get().clone(),
            dashmap::Entry::Vacant(entry) => {
                let (done, result) = watch::channel(None);
                entry.insert(result.clone());
                let engine = self.clone();
                tokio::spawn(async move {
                    let leaves = LeavesWhenDropped(&engine.0.syncs, endpoint);
                    let ended = engine.sync_under_present_settings(org, endpoint, trigger).await.map(Arc::new);
                    // Out of the table before the news, so that whoever asks after it gets a new sync.
                    drop(leaves);
                    done.send_replace(Some(ended));
                });
                result
            }
        }
    }

    /// At the first sight of a conversation, syncs the endpoints whose dialect wants it: all at once, shortly. Answers
    /// the access with the catalog as it is then.
    pub async fn begin_conversation(&self, access: AgentAccess, conversation: &str) -> AgentAccess {
        if !self.0.conversations.is_new(access.key().org_id, conversation) {
            return access;
        }
        self.begin_unnamed_conversation(access).await
    }

    /// The same for a conversation that is new and has no name to be known by again.
    pub async fn begin_unnamed_conversation(&self, access: AgentAccess) -> AgentAccess {
        let org = access.key().org_id;
        let wanted: Vec<_> = access
            .catalog()
            .endpoints()
            .filter(|endpoint| endpoint.settings.enabled && endpoint.settings.dialect.syncs_on_conversation())
            .map(|endpoint| self.start_sync(org, endpoint.id, SyncTrigger::Conversation))
            .collect();
        let until = Instant::now() + CONVERSATION_WAIT;
        for mut result in wanted {
            // Whatever becomes of it, the last good tools are there.
            let _ = tokio::time::timeout_at(until, result.wait_for(Option::is_some)).await;
        }
        access.renewed()
    }

    /// Syncs again when the settings changed meanwhile: whoever changed them shares this sync and wants their effect.
    async fn sync_under_present_settings(
        &self,
        org: OrgId,
        endpoint: EndpointId,
        trigger: SyncTrigger,
    ) -> Result<SyncRecord, SyncError> {
        let mut ended = self.sync_now(org, endpoint, trigger).await;
        for _ in 0..MAX_OVERTAKEN {
            if !matches!(ended, Err(SyncError::SettingsChanged)) {
                break;
            }
            ended = self.sync_now(org, endpoint, trigger).await;
        }
        if let Err(error @ (SyncError::Store(_) | SyncError::SettingsChanged)) = &ended {
            tracing::warn!(%org, %endpoint, %error, "a sync left no record");
        }
        ended
    }

    async fn sync_now(
        &self,
        org_id: OrgId,
        endpoint_id: EndpointId,
        trigger: SyncTrigger,
    ) -> Result<SyncRecord, SyncError> {
        let org = self.store().org(org_id).await?.ok_or(SyncError::NotFound)?;
        let endpoint = self.store().endpoint(org_id, endpoint_id).await?.ok_or(SyncError::NotFound)?;
        if !endpoint.settings.enabled || org.state != OrgState::Active {
            return Err(SyncError::Disabled);
        }
        let at = self.clock().now();
        if trigger == SyncTrigger::Conversation && (is_recent(&endpoint.sync, at) || is_backing_off(&endpoint.sync, at))
        {
            return Err(SyncError::NotDue);
        }
        let begun = Instant::now();
        let (fetched, http_status) = self.fetch_manifest(&org, &endpoint).await;
        let mut record = SyncRecord {
            id: SyncId::from_uuid(self.clock().new_uuid()),
            endpoint_id,
            at,
            trigger,
            outcome: SyncOutcome::Failed,
            fault: None,
            http_status,
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            hash: None,
            diff: None,
            skipped: Vec::new(),
        };
        let ended = match fetched {
            Err(fault) => self.end_failed(&org, &endpoint, record, fault).await,
            Ok(Fetched::NotModified) => {
                record.hash.clone_from(&endpoint.sync.manifest_hash);
                let SyncState { manifest_etag: etag, protocol_version, .. } = endpoint.sync.clone();
                self.end_unchanged(&org, &endpoint, record, Stamp { etag, protocol_version }).await
            }
            Ok(Fetched::Manifest(manifest)) => {
                record.hash = Some(manifest.hash.clone());
                if is_unchanged(&endpoint, &manifest) {
                    self.end_unchanged(&org, &endpoint, record, Stamp::of(manifest)).await
                } else {
                    self.decide_and_store(&endpoint, record, manifest).await
                }
            }
        }?;
        self.metrics().sync(&org.slug, ended.outcome.as_str());
        let healthy = self.0.registry.live(org_id).is_none_or(|handle| handle.is_healthy(endpoint_id));
        let up = ended.outcome != SyncOutcome::Failed && healthy;
        self.metrics().endpoint_up(&org.slug, &endpoint.settings.name, up);
        let present = self.store().endpoint(org_id, endpoint_id).await?.ok_or(SyncError::NotFound)?;
        if present.version != endpoint.version {
            return Err(SyncError::SettingsChanged);
        }
        Ok(ended)
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn random_below(&self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.clock().fill_random(&mut bytes);
        u64::from_be_bytes(bytes) % bound.max(1)
    }
}

struct LeavesWhenDropped<'a>(&'a SingleFlight, EndpointId);

impl Drop for LeavesWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.under_way.remove(&self.1);
    }
}

/// The manifest is the one in force, read under the same settings, and nothing was left out that might fit by now.
fn is_unchanged(endpoint: &Endpoint, manifest: &Manifest) -> bool {
    endpoint.sync.manifest_hash.as_ref() == Some(&manifest.hash)
        && endpoint.sync.applied_version == Some(endpoint.version)
        && endpoint.sync.skipped == manifest.skipped
}
