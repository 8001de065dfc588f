//! What a fetched manifest does to the catalog: decided on the store's present state, stored in one step.

use super::SyncError;
use crate::domain::endpoint::{Endpoint, SyncPolicy, SyncState, ToolChanges};
use crate::domain::manifest::{Manifest, ManifestDiff, SkippedTool, SyncFault, SyncOutcome, SyncReason};
use crate::domain::naming;
use crate::domain::org::Org;
use crate::domain::tool::{DeclaredTool, Dialect};
use crate::engine::Engine;
use crate::engine::catalog::limits_in_force;
use crate::engine::ports::StoreError;
use crate::engine::settings::MAX_MEDIAN_TOOLS;
use crate::engine::store_port::{NewToolSet, OrgConfig, SyncEnd, SyncRecord};
use std::collections::HashMap;

/// What a set in force is known by, besides its content.
pub(super) struct Stamp {
    pub(super) etag: Option<String>,
    pub(super) protocol_version: Option<String>,
}

impl Stamp {
    pub(super) fn of(manifest: Manifest) -> Self {
        Self { etag: manifest.etag, protocol_version: manifest.protocol_version }
    }
}

/// Decisions are made anew at most this often when other changes keep coming first.
const MAX_DECISIONS: usize = 32;

impl Engine {
    pub(super) async fn end_failed(
        &self,
        org: &Org,
        endpoint: &Endpoint,
        mut record: SyncRecord,
        fault: SyncFault,
    ) -> Result<SyncRecord, SyncError> {
        record.outcome = SyncOutcome::Failed;
        record.fault = Some(fault.clone());
        let state = SyncState {
            last_synced_at: Some(self.clock().now()),
            fault: Some(fault),
            failures_in_a_row: endpoint.sync.failures_in_a_row.saturating_add(1),
            ..endpoint.sync.clone()
        };
        let changed = endpoint.sync.fault != state.fault;
        if changed && let Some(fault) = &state.fault {
            // Once for each reason: an endpoint that stays down is not told of every five minutes.
            tracing::warn!(org = %org.slug, endpoint = %endpoint.settings.name, reason = fault.reason.as_str(), "a sync failed");
        }
        self.finish(org, endpoint, record, state, None, changed).await
    }

    pub(super) async fn end_unchanged(
        &self,
        org: &Org,
        endpoint: &Endpoint,
        mut record: SyncRecord,
        stamp: Stamp,
    ) -> Result<SyncRecord, SyncError> {
        record.outcome = SyncOutcome::Unchanged;
        record.skipped.clone_from(&endpoint.sync.skipped);
        let now = Some(self.clock().now());
        // Calls are made in the revision that the catalog names.
        let is_news = endpoint.sync.fault.is_some() || endpoint.sync.protocol_version != stamp.protocol_version;
        let state = SyncState {
            last_synced_at: now,
            last_good_at: now,
            fault: None,
            failures_in_a_row: 0,
            applied_version: Some(endpoint.version),
            manifest_etag: stamp.etag,
            protocol_version: stamp.protocol_version,
            ..endpoint.sync.clone()
        };
        self.finish(org, endpoint, record, state, None, is_news).await
    }

    /// Decides on what the store holds now, and again when that has changed before the decision was stored.
    pub(super) async fn decide_and_store(
        &self,
        fetched: &Endpoint,
        record: SyncRecord,
        manifest: Manifest,
    ) -> Result<SyncRecord, SyncError> {
        for _ in 0..MAX_DECISIONS {
            let turn = self.0.turns.take(fetched.org_id).await;
            let config = self.store().load_org(fetched.org_id).await?.ok_or(SyncError::NotFound)?;
            let endpoint = config.endpoints.iter().map(|(endpoint, _)| endpoint).find(|e| e.id == fetched.id);
            let endpoint = endpoint.ok_or(SyncError::NotFound)?.clone();
            if endpoint.version != fetched.version {
                // The manifest was read under other settings: it says nothing about these.
                return Err(SyncError::SettingsChanged);
            }
            let stored = match admit_tools(&config, &endpoint, manifest.clone(), self.max_tools(&config.org)) {
                Err(fault) => self.end_failed(&config.org, &endpoint, record.clone(), fault).await,
                Ok(manifest) => self.end_applied(&config, &endpoint, record.clone(), manifest).await,
            };
            drop(turn);
            match stored {
                Err(SyncError::Store(error)) if matches!(*error, StoreError::Stale | StoreError::NameTaken { .. }) => {}
                ended => return ended,
            }
        }
        Err(StoreError::Overloaded.into())
    }

    fn max_tools(&self, org: &Org) -> usize {
        usize::try_from(limits_in_force(org, self.settings()).max_tools).unwrap_or(usize::MAX)
    }

    async fn end_applied(
        &self,
        config: &OrgConfig,
        endpoint: &Endpoint,
        mut record: SyncRecord,
        manifest: Manifest,
    ) -> Result<SyncRecord, SyncError> {
        let before = self.store().declared_tools(config.org.id, endpoint.id).await?;
        let first_good = endpoint.sync.last_good_at.is_none();
        let accepted = match endpoint.settings.tool_changes {
            ToolChanges::Review if first_good => {
                manifest.tools.iter().map(|tool| (tool.spec.name.clone(), tool.spec.hash.clone())).collect()
            }
            ToolChanges::Review | ToolChanges::Accept => Vec::new(),
        };
        let now = Some(self.clock().now());
        let diff = ManifestDiff::between(&before, &manifest.tools);
        let same_set = diff.is_empty() && endpoint.sync.skipped == manifest.skipped;
        if same_set && endpoint.sync.manifest_hash.as_ref() == Some(&manifest.hash) {
            // The same tools were left out for the same reasons as the last time.
            return self.end_unchanged(&config.org, endpoint, record, Stamp::of(manifest)).await;
        }
        record.outcome = SyncOutcome::Applied;
        record.diff = Some(diff);
        record.skipped.clone_from(&manifest.skipped);
        let state = SyncState {
            last_synced_at: now,
            last_good_at: now,
            fault: None,
            manifest_hash: Some(manifest.hash),
            manifest_etag: manifest.etag,
            applied_version: Some(endpoint.version),
            skipped: manifest.skipped,
            failures_in_a_row: 0,
            diagnostics: manifest.diagnostics,
            protocol_version: manifest.protocol_version,
        };
        let tools = NewToolSet { tools: manifest.tools, expected_revision: config.revision, accepted };
        self.finish(&config.org, endpoint, record, state, Some(tools), true).await
    }

    async fn finish(
        &self,
        org: &Org,
        endpoint: &Endpoint,
        record: SyncRecord,
        state: SyncState,
        tools: Option<NewToolSet>,
        visible: bool,
    ) -> Result<SyncRecord, SyncError> {
        let next_due = self.next_due(org, endpoint, state.failures_in_a_row);
        let end = SyncEnd { org_id: org.id, record: record.clone(), state, tools, next_due };
        self.store().finish_sync(&end).await?;
        if visible {
            self.changed(org.id).await?;
        }
        Ok(record)
    }
}

/// Fits a manifest into the organization: names that belong to another endpoint, and how many tools there may be.
fn admit_tools(
    config: &OrgConfig,
    endpoint: &Endpoint,
    mut manifest: Manifest,
    max_tools: usize,
) -> Result<Manifest, SyncFault> {
    let others = || config.endpoints.iter().filter(|(other, _)| other.id != endpoint.id);
    let taken: HashMap<String, (&str, &str)> = others()
        .flat_map(|(other, tools)| tools.iter().map(move |tool| (other, tool)))
        .map(|(other, tool)| (naming::fold(&tool.name), (tool.name.as_str(), other.settings.name.as_str())))
        .collect();
    let mut kept = Vec::with_capacity(manifest.tools.len());
    for tool in manifest.tools {
        match taken.get(&naming::fold(&tool.spec.name)) {
            None => kept.push(tool),
            Some((name, owner)) => {
                let fault = name_taken(&tool, name, owner);
                match endpoint.settings.sync_policy {
                    SyncPolicy::Reject => return Err(fault),
                    SyncPolicy::Skip => manifest.skipped.push(SkippedTool { tool: tool.spec.provider_name, fault }),
                }
            }
        }
    }
    manifest.tools = kept;
    let elsewhere: usize = others().map(|(_, tools)| tools.len()).sum();
    if elsewhere + manifest.tools.len() > max_tools {
        let message = format!(
            "the organization may have {max_tools} tools; it has {elsewhere} from other endpoints and this manifest brings {}",
            manifest.tools.len()
        );
        return Err(SyncFault::new(SyncReason::OrgToolLimit, message));
    }
    if endpoint.settings.dialect == Dialect::Median {
        let median = others().filter(|(other, _)| other.settings.dialect == Dialect::Median);
        let elsewhere: usize = median.map(|(_, tools)| tools.len()).sum();
        if elsewhere + manifest.tools.len() > MAX_MEDIAN_TOOLS {
            let message = format!(
                "all median endpoints together may have {MAX_MEDIAN_TOOLS} tools; the others have {elsewhere} and this manifest brings {}",
                manifest.tools.len()
            );
            return Err(SyncFault::new(SyncReason::TooManyTools, message));
        }
    }
    Ok(manifest)
}

fn name_taken(tool: &DeclaredTool, name: &str, owner: &str) -> SyncFault {
    let ours = &tool.spec.name;
    let clash = if ours == name {
        String::new()
    } else {
        format!(" (as \"{name}\", which differs only by case or separators)")
    };
    SyncFault::new(
        SyncReason::NameTaken,
        format!(
            "the tool \"{ours}\" belongs to endpoint \"{owner}\" already{clash}; rename it or give this endpoint a name_prefix"
        ),
    )
}
