//! Endpoints on the wire.

use crate::domain::change::Change;
use crate::domain::endpoint::{SyncPolicy, ToolChanges};
use crate::domain::json::JsonText;
use crate::domain::risk::Risk;
use crate::domain::secret::Secret;
use crate::domain::tool::Dialect;
use crate::engine::administration::endpoints::{AuthInput, EndpointPatch, EndpointView, NewEndpoint};
use crate::http::error::Problem;
use crate::http::json::{self, Object, present};
use crate::http::wire::{Reason, Skipped, change, skipped, word};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A registration.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct EndpointBody {
    /// A slug, unique in the organization.
    name: String,
    /// `topology`, `agent-provider`, `median` or `mcp`.
    dialect: String,
    /// Absolute http(s) URL.
    base_url: String,
    /// Credentials, as the dialect wants them; an mcp endpoint may have none.
    #[schema(value_type = Option<AuthBody>)]
    auth: Option<Object<AuthBody>>,
    /// Goes before every tool name.
    name_prefix: Option<String>,
    /// How its manifest is synced.
    #[schema(value_type = Option<SyncBody>)]
    sync: Option<Object<SyncBody>>,
    /// `accept` (default) or `review`.
    tool_changes: Option<String>,
    /// `"fetch"` (default) or `{"tools":[…]}`.
    #[schema(value_type = Option<serde_json::Value>)]
    manifest: Option<Box<RawValue>>,
    /// Whether what the server says of its tools is believed (mcp only; default false).
    trusted: Option<bool>,
    /// `low`, `medium` (default), `reviewed` or `high`: the risk of its tools (mcp only).
    default_risk: Option<String>,
}

/// Credentials; which members belong together depends on the dialect.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AuthBody {
    /// Header name (topology, mcp).
    header: Option<String>,
    /// Header value (topology, mcp).
    value: Option<String>,
    /// The bearer token (agent-provider, mcp).
    bearer: Option<String>,
    /// The secret requests are signed with (median).
    signing_secret: Option<String>,
    /// The key the signing secret is derived from (median).
    median_key: Option<String>,
}

/// How a manifest is synced.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SyncBody {
    /// `reject` (default) or `skip`: what one bad tool does.
    policy: Option<String>,
    /// Seconds between syncs, 0 for off; null takes the organization's.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    interval_s: Option<Option<u64>>,
}

/// A change of an endpoint: what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct EndpointPatchBody {
    /// Its name.
    #[serde(default, deserialize_with = "present")]
    name: Option<String>,
    /// Its URL.
    #[serde(default, deserialize_with = "present")]
    base_url: Option<String>,
    /// Its credentials, whole.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<AuthBody>)]
    auth: Option<Object<AuthBody>>,
    /// Its prefix; null takes it away.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    name_prefix: Option<Option<String>>,
    /// Whether its tools are offered.
    #[serde(default, deserialize_with = "present")]
    enabled: Option<bool>,
    /// How its manifest is synced.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<SyncBody>)]
    sync: Option<Object<SyncBody>>,
    /// `accept` or `review`.
    #[serde(default, deserialize_with = "present")]
    tool_changes: Option<String>,
    /// `"fetch"` (or null) or `{"tools":[…]}`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    manifest: Option<Box<RawValue>>,
    /// Whether what the server says of its tools is believed (mcp only).
    #[serde(default, deserialize_with = "present")]
    trusted: Option<bool>,
    /// `low`, `medium`, `reviewed` or `high`: the risk of its tools (mcp only).
    #[serde(default, deserialize_with = "present")]
    default_risk: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InlineManifest {
    tools: Box<RawValue>,
}

impl EndpointBody {
    /// The registration as the engine takes it.
    pub(super) fn into_new(self) -> Result<NewEndpoint, Problem> {
        let sync = self.sync.map(|sync| sync.0).unwrap_or_default();
        let manifest = self.manifest.as_deref().map(manifest).transpose()?;
        Ok(NewEndpoint {
            name: self.name,
            dialect: word("dialect", &self.dialect, Dialect::parse, "topology, agent-provider, median, mcp")?,
            base_url: self.base_url,
            auth: self.auth.map(|auth| auth.0.into_input()).unwrap_or_default(),
            name_prefix: self.name_prefix,
            sync_policy: sync.policy()?,
            sync_interval_s: sync.interval_s.flatten(),
            tool_changes: tool_changes(self.tool_changes.as_deref())?,
            manifest: manifest.flatten(),
            trusted: self.trusted,
            default_risk: default_risk(self.default_risk.as_deref())?,
        })
    }
}

impl EndpointPatchBody {
    /// The change as the engine takes it.
    pub(super) fn into_patch(self) -> Result<EndpointPatch, Problem> {
        let sync = self.sync.map(|sync| sync.0).unwrap_or_default();
        let manifest = match self.manifest.as_deref().map(manifest).transpose()? {
            None => Change::Keep,
            Some(None) => Change::Clear,
            Some(Some(inline)) => Change::Set(inline),
        };
        Ok(EndpointPatch {
            name: self.name,
            base_url: self.base_url,
            auth: self.auth.map(|auth| auth.0.into_input()),
            name_prefix: change(self.name_prefix),
            enabled: self.enabled,
            sync_policy: sync.policy()?,
            sync_interval_s: change(sync.interval_s),
            tool_changes: tool_changes(self.tool_changes.as_deref())?,
            manifest,
            trusted: self.trusted,
            default_risk: default_risk(self.default_risk.as_deref())?,
        })
    }
}

impl AuthBody {
    fn into_input(self) -> AuthInput {
        AuthInput {
            header: self.header,
            value: self.value.map(Secret::new),
            bearer: self.bearer.map(Secret::new),
            signing_secret: self.signing_secret.map(Secret::new),
            median_key: self.median_key.map(Secret::new),
        }
    }
}

impl SyncBody {
    fn policy(&self) -> Result<Option<SyncPolicy>, Problem> {
        let parse = |text: &String| word("sync.policy", text, SyncPolicy::parse, "reject, skip");
        self.policy.as_ref().map(parse).transpose()
    }
}

fn tool_changes(text: Option<&str>) -> Result<Option<ToolChanges>, Problem> {
    text.map(|text| word("tool_changes", text, ToolChanges::parse, "accept, review")).transpose()
}

fn default_risk(text: Option<&str>) -> Result<Option<Risk>, Problem> {
    text.map(|text| word("default_risk", text, Risk::parse, "low, medium, reviewed, high")).transpose()
}

/// `None` for a manifest that is fetched, else the JSON array of the tools as it was written.
fn manifest(given: &RawValue) -> Result<Option<JsonText>, Problem> {
    const SHAPE: &str = "manifest is \"fetch\" or {\"tools\":[…]}";
    match given.get() {
        "\"fetch\"" | "null" => Ok(None),
        text if text.starts_with('{') => {
            let inline: InlineManifest = json::parse(text.as_bytes())?;
            let is_array = inline.tools.get().starts_with('[');
            if is_array { Ok(Some(JsonText::from(inline.tools))) } else { Err(Problem::invalid_request(SHAPE)) }
        }
        _ => Err(Problem::invalid_request(SHAPE)),
    }
}

/// An endpoint as its tenant sees it.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct EndpointItem {
    id: String,
    name: String,
    /// `topology`, `agent-provider`, `median` or `mcp`.
    dialect: &'static str,
    base_url: String,
    enabled: bool,
    /// `connected`, `sync_failed` or `disabled`.
    state: &'static str,
    /// Why the last sync failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_synced_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_good_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_hash: Option<String>,
    /// Tools of the last good set.
    tool_count: usize,
    /// Tools the last good sync left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Vec<Skipped>>,
    /// Where the response node delivers late answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<CallbackItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_prefix: Option<String>,
    sync: SyncSettings,
    /// `accept` or `review`.
    tool_changes: &'static str,
    /// `fetch` or `inline`.
    manifest: &'static str,
    /// Whether what the server says of its tools is believed (mcp only).
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted: Option<bool>,
    /// The risk of its tools (mcp only).
    #[serde(skip_serializing_if = "Option::is_none")]
    default_risk: Option<&'static str>,
    /// The revision of the protocol it speaks (mcp only, once it was synced).
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
    created_at: String,
    updated_at: String,
}

/// Where a response node delivers.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct CallbackItem {
    url: String,
    /// Shown when the endpoint is registered, and never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// How a manifest is synced.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct SyncSettings {
    /// `reject` or `skip`.
    policy: &'static str,
    /// Seconds between syncs; absent where the organization's holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_s: Option<u64>,
}

impl EndpointItem {
    /// An endpoint; `secret` is shown only by the answer that made it.
    pub(super) fn of(view: &EndpointView, secret: Option<&Secret>) -> Self {
        let (endpoint, settings, sync) = (&view.endpoint, &view.endpoint.settings, &view.endpoint.sync);
        let is_mcp = settings.dialect == Dialect::Mcp;
        let callback = view
            .callback_url
            .clone()
            .map(|url| CallbackItem { url, secret: secret.map(|secret| secret.reveal().to_owned()) });
        Self {
            id: endpoint.id.to_string(),
            name: settings.name.clone(),
            dialect: settings.dialect.as_str(),
            base_url: settings.base_url.clone(),
            enabled: settings.enabled,
            state: endpoint.state().as_str(),
            reason: sync.fault.as_ref().map(Reason::of),
            last_synced_at: sync.last_synced_at.map(|at| at.to_string()),
            last_good_at: sync.last_good_at.map(|at| at.to_string()),
            manifest_hash: sync.manifest_hash.clone(),
            tool_count: view.tool_count,
            skipped: skipped(&sync.skipped),
            callback,
            name_prefix: settings.name_prefix.clone(),
            sync: SyncSettings { policy: settings.sync_policy.as_str(), interval_s: settings.sync_interval_s },
            tool_changes: settings.tool_changes.as_str(),
            manifest: if settings.inline_manifest.is_some() { "inline" } else { "fetch" },
            trusted: is_mcp.then_some(settings.trusted),
            default_risk: is_mcp.then(|| settings.default_risk.as_str()),
            protocol_version: sync.protocol_version.clone(),
            created_at: endpoint.created_at.to_string(),
            updated_at: endpoint.updated_at.to_string(),
        }
    }
}

/// A new callback secret.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct RotatedSecret {
    /// The secret, shown once.
    pub(super) secret: String,
    /// Until when the one before is accepted.
    pub(super) previous_valid_until: String,
}

/// What a provider says about itself.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct DiagnosticsAnswer<'a> {
    /// As the provider wrote it.
    #[schema(value_type = Object)]
    pub(super) diagnostics: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(manifest: &str) -> Result<NewEndpoint, Problem> {
        let text = format!(
            r#"{{"name":"a","dialect":"topology","base_url":"https://a.example","auth":{{"value":"v"}},"manifest":{manifest}}}"#
        );
        json::parse::<EndpointBody>(text.as_bytes())?.into_new()
    }

    #[test]
    fn an_inline_manifest_is_kept_as_it_was_written() {
        let inline = |text: &str| body(text).map(|new| new.manifest.map(|text| text.as_str().to_owned()));
        assert!(matches!(inline("\"fetch\""), Ok(None)));
        assert!(matches!(inline("null"), Ok(None)));
        assert_eq!(
            inline(r#"{"tools":[ {"id":"topology:a"} ]}"#).ok().flatten().as_deref(),
            Some(r#"[ {"id":"topology:a"} ]"#)
        );
        for bad in ["[]", "1", "\"inline\"", "{}", r#"{"tools":{}}"#, r#"{"tools":[],"x":1}"#] {
            assert!(inline(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_patch_tells_absent_from_null() {
        let patch =
            |text: &str| json::parse::<EndpointPatchBody>(text.as_bytes()).and_then(EndpointPatchBody::into_patch);
        let nothing = patch("{}").expect("accepted");
        assert_eq!((nothing.manifest, nothing.name_prefix), (Change::Keep, Change::Keep));
        let cleared = patch(r#"{"manifest":null,"name_prefix":null,"sync":{"interval_s":null}}"#).expect("accepted");
        assert_eq!((cleared.manifest, cleared.name_prefix), (Change::Clear, Change::Clear));
        assert_eq!(cleared.sync_interval_s, Change::Clear);
        assert_eq!(patch(r#"{"manifest":"fetch"}"#).expect("accepted").manifest, Change::Clear);
        for bad in [r#"{"name":null}"#, r#"{"enabled":null}"#, r#"{"dialect":"median"}"#, r#"{"tool_changes":"x"}"#] {
            assert!(patch(bad).is_err(), "{bad}");
        }
    }
}
