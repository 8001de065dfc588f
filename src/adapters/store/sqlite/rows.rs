//! The documents inside rows: what is kept as JSON because nothing is queried by it. They are the store's own; the
//! domain knows nothing of them.

use super::corrupt;
use crate::domain::endpoint::{
    CallbackSecret, DEFAULT_RISK, EndpointAuth, EndpointSettings, SyncPolicy, SyncState, ToolChanges,
};
use crate::domain::group::{Effect, Rule};
use crate::domain::json::JsonText;
use crate::domain::manifest::{
    ChangedTool, ManifestDiff, SkippedTool, SyncFault, SyncOutcome, SyncReason, SyncTrigger,
};
use crate::domain::org::{LimitOverrides, Limits};
use crate::domain::risk::Risk;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::domain::tool::Dialect;
use crate::engine::store_port::{StoreResult, SyncRecord};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// Writes a document.
pub(super) fn to_text<T: Serialize>(document: &T) -> String {
    serde_json::to_string(document).expect("a document of ours has string keys and no failing parts")
}

/// Reads a document back.
pub(super) fn from_text<'a, T: Deserialize<'a>>(what: &'static str, text: &'a str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|_| corrupt(what))
}

/// A present member counts as present also when it is `null`: a provider's result may be just that.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

pub(super) type LimitsDoc = BTreeMap<String, u64>;

pub(super) fn limits_doc(limits: &LimitOverrides) -> LimitsDoc {
    Limits::NAMES.iter().filter_map(|name| limits.get(name).map(|value| ((*name).to_owned(), value))).collect()
}

/// A limit that this version does not know any more is left out.
pub(super) fn limits_of(doc: &LimitsDoc) -> LimitOverrides {
    let mut limits = LimitOverrides::default();
    for (name, value) in doc {
        limits.set(name, Some(*value));
    }
    limits
}

#[derive(Serialize, Deserialize)]
pub(super) struct OrgDoc {
    pub(super) operator_limits: LimitsDoc,
    pub(super) tenant_limits: LimitsDoc,
    pub(super) egress_allow: Vec<IpNet>,
    /// Absent where it was never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) confirmation_fallback: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RuleDoc {
    effect: String,
    tools: Option<Vec<String>>,
    endpoints: Option<Vec<String>>,
    risks: Option<Vec<String>>,
}

impl RuleDoc {
    pub(super) fn of(rule: &Rule) -> Self {
        let words = |risks: &Vec<Risk>| risks.iter().map(|risk| risk.as_str().to_owned()).collect();
        Self {
            effect: rule.effect.as_str().to_owned(),
            tools: rule.tools.clone(),
            endpoints: rule.endpoints.clone(),
            risks: rule.risks.as_ref().map(words),
        }
    }

    pub(super) fn rule(self) -> StoreResult<Rule> {
        let risks = |words: Vec<String>| words.iter().map(|word| Risk::parse(word)).collect::<Option<Vec<Risk>>>();
        Ok(Rule {
            effect: Effect::parse(&self.effect).ok_or_else(|| corrupt("group"))?,
            tools: self.tools,
            endpoints: self.endpoints,
            risks: self.risks.map(|words| risks(words).ok_or_else(|| corrupt("group"))).transpose()?,
        })
    }
}

/// Sealed as a whole: a header's name goes along with its value.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum AuthDoc {
    Header { name: String, value: String },
    Bearer { token: String },
    SigningSecret { secret: String },
    MedianKey { key: String },
    None,
}

impl AuthDoc {
    pub(super) fn of(auth: &EndpointAuth) -> Self {
        match auth {
            EndpointAuth::Header { name, value } => {
                Self::Header { name: name.clone(), value: value.reveal().to_owned() }
            }
            EndpointAuth::Bearer(token) => Self::Bearer { token: token.reveal().to_owned() },
            EndpointAuth::SigningSecret(secret) => Self::SigningSecret { secret: secret.reveal().to_owned() },
            EndpointAuth::MedianKey(key) => Self::MedianKey { key: key.reveal().to_owned() },
            EndpointAuth::None => Self::None,
        }
    }

    pub(super) fn auth(self) -> EndpointAuth {
        match self {
            Self::Header { name, value } => EndpointAuth::Header { name, value: Secret::new(value) },
            Self::Bearer { token } => EndpointAuth::Bearer(Secret::new(token)),
            Self::SigningSecret { secret } => EndpointAuth::SigningSecret(Secret::new(secret)),
            Self::MedianKey { key } => EndpointAuth::MedianKey(Secret::new(key)),
            Self::None => EndpointAuth::None,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct CallbackSecretDoc {
    secret: String,
    valid_until: Option<i64>,
}

impl CallbackSecretDoc {
    pub(super) fn of(secret: &CallbackSecret) -> Self {
        Self { secret: secret.secret.reveal().to_owned(), valid_until: secret.valid_until.map(Timestamp::as_millis) }
    }

    pub(super) fn secret(self) -> CallbackSecret {
        CallbackSecret { secret: Secret::new(self.secret), valid_until: self.valid_until.map(Timestamp::from_millis) }
    }
}

/// Settings but for the name, the switch and the credentials, which are columns.
#[derive(Serialize, Deserialize)]
pub(super) struct SettingsDoc {
    dialect: String,
    base_url: String,
    name_prefix: Option<String>,
    sync_policy: String,
    sync_interval_s: Option<u64>,
    tool_changes: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inline_manifest: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mcp: Option<McpSettingsDoc>,
}

/// What is set of MCP endpoints only.
#[derive(Serialize, Deserialize)]
struct McpSettingsDoc {
    trusted: bool,
    default_risk: String,
}

impl SettingsDoc {
    pub(super) fn of(settings: &EndpointSettings) -> Self {
        Self {
            dialect: settings.dialect.as_str().to_owned(),
            base_url: settings.base_url.clone(),
            name_prefix: settings.name_prefix.clone(),
            sync_policy: settings.sync_policy.as_str().to_owned(),
            sync_interval_s: settings.sync_interval_s,
            tool_changes: settings.tool_changes.as_str().to_owned(),
            inline_manifest: settings.inline_manifest.as_ref().map(|manifest| manifest.raw().to_owned()),
            mcp: (settings.dialect == Dialect::Mcp).then(|| McpSettingsDoc {
                trusted: settings.trusted,
                default_risk: settings.default_risk.as_str().to_owned(),
            }),
        }
    }

    pub(super) fn settings(self, name: String, enabled: bool, auth: EndpointAuth) -> StoreResult<EndpointSettings> {
        let risk = |mcp: &McpSettingsDoc| Risk::parse(&mcp.default_risk).ok_or_else(|| corrupt("endpoint"));
        Ok(EndpointSettings {
            name,
            dialect: Dialect::parse(&self.dialect).ok_or_else(|| corrupt("endpoint"))?,
            base_url: self.base_url,
            auth,
            name_prefix: self.name_prefix,
            enabled,
            sync_policy: SyncPolicy::parse(&self.sync_policy).ok_or_else(|| corrupt("endpoint"))?,
            sync_interval_s: self.sync_interval_s,
            tool_changes: ToolChanges::parse(&self.tool_changes).ok_or_else(|| corrupt("endpoint"))?,
            inline_manifest: self.inline_manifest.map(JsonText::from),
            trusted: self.mcp.as_ref().is_some_and(|mcp| mcp.trusted),
            default_risk: self.mcp.as_ref().map_or(Ok(DEFAULT_RISK), risk)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct FaultDoc {
    reason: String,
    message: String,
}

impl FaultDoc {
    fn of(fault: &SyncFault) -> Self {
        Self { reason: fault.reason.as_str().to_owned(), message: fault.message.clone() }
    }

    fn fault(self) -> StoreResult<SyncFault> {
        let reason = SyncReason::parse(&self.reason).ok_or_else(|| corrupt("sync"))?;
        Ok(SyncFault { reason, message: self.message })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct SkippedDoc {
    tool: String,
    fault: FaultDoc,
}

fn skipped_docs(skipped: &[SkippedTool]) -> Vec<SkippedDoc> {
    skipped.iter().map(|s| SkippedDoc { tool: s.tool.clone(), fault: FaultDoc::of(&s.fault) }).collect()
}

fn skipped_of(docs: Vec<SkippedDoc>) -> StoreResult<Vec<SkippedTool>> {
    docs.into_iter().map(|doc| Ok(SkippedTool { tool: doc.tool, fault: doc.fault.fault()? })).collect()
}

#[derive(Serialize, Deserialize)]
pub(super) struct SyncStateDoc {
    last_synced_at: Option<i64>,
    last_good_at: Option<i64>,
    fault: Option<FaultDoc>,
    manifest_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manifest_etag: Option<String>,
    applied_version: Option<u64>,
    skipped: Vec<SkippedDoc>,
    failures_in_a_row: u32,
    diagnostics: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
}

impl SyncStateDoc {
    pub(super) fn of(state: &SyncState) -> Self {
        Self {
            last_synced_at: state.last_synced_at.map(Timestamp::as_millis),
            last_good_at: state.last_good_at.map(Timestamp::as_millis),
            fault: state.fault.as_ref().map(FaultDoc::of),
            manifest_hash: state.manifest_hash.clone(),
            manifest_etag: state.manifest_etag.clone(),
            applied_version: state.applied_version,
            skipped: skipped_docs(&state.skipped),
            failures_in_a_row: state.failures_in_a_row,
            diagnostics: state.diagnostics,
            protocol_version: state.protocol_version.clone(),
        }
    }

    pub(super) fn state(self) -> StoreResult<SyncState> {
        Ok(SyncState {
            last_synced_at: self.last_synced_at.map(Timestamp::from_millis),
            last_good_at: self.last_good_at.map(Timestamp::from_millis),
            fault: self.fault.map(FaultDoc::fault).transpose()?,
            manifest_hash: self.manifest_hash,
            manifest_etag: self.manifest_etag,
            applied_version: self.applied_version,
            skipped: skipped_of(self.skipped)?,
            failures_in_a_row: self.failures_in_a_row,
            diagnostics: self.diagnostics,
            protocol_version: self.protocol_version,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct ChangedDoc {
    name: String,
    members: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct DiffDoc {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<ChangedDoc>,
}

/// A sync but for its ids and its time, which are columns.
#[derive(Serialize, Deserialize)]
pub(super) struct SyncRecordDoc {
    trigger: String,
    outcome: String,
    fault: Option<FaultDoc>,
    http_status: Option<u16>,
    duration_ms: u64,
    hash: Option<String>,
    diff: Option<DiffDoc>,
    skipped: Vec<SkippedDoc>,
}

impl SyncRecordDoc {
    pub(super) fn of(record: &SyncRecord) -> Self {
        let changed = |tool: &ChangedTool| ChangedDoc { name: tool.name.clone(), members: tool.members.clone() };
        let diff = |diff: &ManifestDiff| DiffDoc {
            added: diff.added.clone(),
            removed: diff.removed.clone(),
            changed: diff.changed.iter().map(changed).collect(),
        };
        Self {
            trigger: record.trigger.as_str().to_owned(),
            outcome: record.outcome.as_str().to_owned(),
            fault: record.fault.as_ref().map(FaultDoc::of),
            http_status: record.http_status,
            duration_ms: record.duration_ms,
            hash: record.hash.clone(),
            diff: record.diff.as_ref().map(diff),
            skipped: skipped_docs(&record.skipped),
        }
    }

    pub(super) fn record(
        self,
        id: crate::domain::ids::SyncId,
        endpoint_id: crate::domain::ids::EndpointId,
        at: Timestamp,
    ) -> StoreResult<SyncRecord> {
        let changed = |doc: ChangedDoc| ChangedTool { name: doc.name, members: doc.members };
        let diff = |doc: DiffDoc| ManifestDiff {
            added: doc.added,
            removed: doc.removed,
            changed: doc.changed.into_iter().map(changed).collect(),
        };
        Ok(SyncRecord {
            id,
            endpoint_id,
            at,
            trigger: SyncTrigger::parse(&self.trigger).ok_or_else(|| corrupt("sync"))?,
            outcome: SyncOutcome::parse(&self.outcome).ok_or_else(|| corrupt("sync"))?,
            fault: self.fault.map(FaultDoc::fault).transpose()?,
            http_status: self.http_status,
            duration_ms: self.duration_ms,
            hash: self.hash,
            diff: self.diff.map(diff),
            skipped: skipped_of(self.skipped)?,
        })
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
