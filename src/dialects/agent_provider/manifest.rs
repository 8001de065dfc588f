//! The manifest: every rule of the contract. A fault of the manifest itself fails the sync; one of a tool does, or
//! leaves the tool out, as the endpoint's policy says.

use super::super::checks::{TakenNames, catalog_name, json_type, object, quoted, value_or_text};
use super::super::{Method, OutboundRequest};
use super::{auth_header, parameters};
use crate::domain::canonical::sha256_hex;
use crate::domain::endpoint::{EndpointSettings, SyncPolicy};
use crate::domain::evidence::{EvidenceKind, EvidenceKinds};
use crate::domain::facts::is_language_tag;
use crate::domain::json::JsonText;
use crate::domain::manifest::{Manifest, SkippedTool, SyncFault, SyncReason};
use crate::domain::tool::{DeclaredTool, ProviderTerms, ToolKind, ToolSpec};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The version of the protocol that is spoken.
const PROTOCOL_VERSION: &str = "1";

/// Most tools of one manifest.
const MAX_TOOLS: usize = 64;

/// Largest `timeout_ms` of a tool.
const MAX_TIMEOUT_MS: u64 = 10_000;

/// The request that fetches the manifest; with an entity tag, only when it has changed since.
pub fn encode_manifest_request(settings: &EndpointSettings, etag: Option<&str>) -> OutboundRequest {
    let mut headers: Vec<_> = auth_header(settings).into_iter().collect();
    headers.extend(etag.map(|etag| (Cow::Borrowed("if-none-match"), etag.to_owned())));
    OutboundRequest {
        method: Method::Get,
        url: format!("{}/.well-known/agent-provider", settings.base_url),
        headers,
        body: Bytes::new(),
        median_signature: false,
    }
}

/// The members of a manifest that mean something here; others are ignored.
#[derive(Deserialize)]
struct ManifestBody<'a> {
    #[serde(borrow)]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow)]
    contract_version: Option<&'a RawValue>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    languages: Option<&'a RawValue>,
    #[serde(borrow)]
    receipt_retention_seconds: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// What the manifest says above its tools.
struct Provider {
    contract_version: String,
    languages: Vec<String>,
    may_mutate: bool,
    receipt_retention: Option<Duration>,
}

/// Checks a manifest body.
pub fn decode_manifest(settings: &EndpointSettings, body: &[u8]) -> Result<Manifest, SyncFault> {
    let whole: &RawValue = serde_json::from_slice(body)
        .map_err(|error| SyncFault::new(SyncReason::NotJson, format!("the manifest is not JSON: {error}")))?;
    let said: ManifestBody<'_> = object(body)
        .ok_or_else(|| bad_manifest("the manifest must be one JSON object in which no member stands twice"))?;
    if text(said.protocol_version).as_deref() != Some(PROTOCOL_VERSION) {
        let message = format!("protocol_version must be the string \"{PROTOCOL_VERSION}\"");
        return Err(SyncFault::new(SyncReason::UnsupportedVersion, message));
    }
    let provider = read_provider(&said)?;
    let tools = said.tools.ok_or_else(|| bad_manifest("the manifest has no tools"))?;
    let items: Vec<&RawValue> =
        serde_json::from_str(tools.get()).map_err(|_| bad_manifest("tools must be an array"))?;
    if items.len() > MAX_TOOLS {
        let message = format!("the manifest has {} tools; {MAX_TOOLS} are allowed", items.len());
        return Err(SyncFault::new(SyncReason::TooManyTools, message));
    }
    let hash = sha256_hex(&value_or_text(whole.get()));
    let mut manifest = Manifest {
        tools: Vec::new(),
        skipped: Vec::new(),
        hash,
        diagnostics: false,
        etag: None,
        protocol_version: None,
    };
    let mut names = TakenNames::default();
    for (index, raw) in items.iter().enumerate() {
        match read_item(settings.name_prefix.as_deref(), &provider, &mut names, index, raw) {
            Ok(tool) => manifest.tools.push(tool),
            Err(skipped) => match settings.sync_policy {
                SyncPolicy::Reject => return Err(skipped.fault),
                SyncPolicy::Skip => manifest.skipped.push(skipped),
            },
        }
    }
    Ok(manifest)
}

fn bad_manifest(message: impl Into<String>) -> SyncFault {
    SyncFault::new(SyncReason::BadManifest, message)
}

/// The characters of a JSON string.
fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// The strings of a JSON array of strings.
fn texts(raw: Option<&RawValue>) -> Option<Vec<String>> {
    serde_json::from_str(raw?.get()).ok()
}

fn read_provider(said: &ManifestBody<'_>) -> Result<Provider, SyncFault> {
    let contract_version = text(said.contract_version)
        .filter(|version| is_calendar_date(version))
        .ok_or_else(|| bad_manifest("contract_version must be a day that exists, written YYYY-MM-DD"))?;
    let capabilities = texts(said.capabilities)
        .ok_or_else(|| bad_manifest("capabilities must be a list with \"read\", \"mutate\", both or neither"))?;
    if let Some(unknown) = capabilities.iter().find(|word| !matches!(word.as_str(), "read" | "mutate")) {
        let message = format!("capabilities has {}; \"read\" and \"mutate\" are all there are", quoted(unknown));
        return Err(bad_manifest(message));
    }
    let languages = texts(said.languages)
        .filter(|languages| !languages.is_empty())
        .ok_or_else(|| bad_manifest("languages must be a list of at least one BCP 47 language tag, such as \"en\""))?;
    if let Some(unknown) = languages.iter().find(|tag| !is_language_tag(tag)) {
        return Err(bad_manifest(format!("languages has {}, which is no BCP 47 language tag", quoted(unknown))));
    }
    let receipt_retention = match said.receipt_retention_seconds.map(RawValue::get) {
        None | Some("null") => None,
        Some(number) => match number.parse::<u64>() {
            Ok(seconds @ 1..) => Some(Duration::from_secs(seconds)),
            Ok(0) | Err(_) => {
                return Err(bad_manifest("receipt_retention_seconds must be a positive integer, or left out"));
            }
        },
    };
    let may_mutate = capabilities.iter().any(|word| word == "mutate");
    Ok(Provider { contract_version, languages, may_mutate, receipt_retention })
}

/// `YYYY-MM-DD`, a day that exists.
pub(super) fn is_calendar_date(text: &str) -> bool {
    let shaped = text.len() == 10
        && text.bytes().enumerate().all(|(at, b)| if matches!(at, 4 | 7) { b == b'-' } else { b.is_ascii_digit() });
    shaped && text.parse::<jiff::civil::Date>().is_ok()
}

fn read_item(
    prefix: Option<&str>,
    provider: &Provider,
    names: &mut TakenNames,
    index: usize,
    raw: &RawValue,
) -> Result<DeclaredTool, SkippedTool> {
    let place = format!("tool {index}");
    let left_out = |tool: &str, fault: SyncFault| SkippedTool { tool: tool.to_owned(), fault };
    let unreadable = |message: String| left_out(&place, bad_manifest(message));
    let declared: Value = serde_json::from_str(raw.get())
        .map_err(|error| unreadable(format!("{place} of the manifest cannot be read: {error}")))?;
    let item = declared.as_object().ok_or_else(|| {
        unreadable(format!("{place} of the manifest must be an object and is {}", json_type(&declared)))
    })?;
    let own_name = item.get("name").and_then(Value::as_str).ok_or_else(|| {
        let message = format!("{place} of the manifest: name must be a string");
        left_out(&place, SyncFault::new(SyncReason::BadName, message))
    })?;
    let bad = |fault: SyncFault| left_out(own_name, fault);
    let spec = read_tool(prefix, provider, own_name, item, &declared).map_err(bad)?;
    // Last, so that a tool that is left out for another reason takes no name.
    names.take(&spec.name).map_err(bad)?;
    Ok(DeclaredTool { spec, declared })
}

fn read_tool(
    prefix: Option<&str>,
    provider: &Provider,
    own_name: &str,
    item: &Map<String, Value>,
    declared: &Value,
) -> Result<ToolSpec, SyncFault> {
    check_name(own_name)?;
    let name = catalog_name(prefix, own_name)?;
    let Some(Value::Bool(mutating)) = item.get("mutating") else {
        return Err(bad_member(own_name, "mutating must be true or false"));
    };
    let kinds = evidence_kinds(own_name, item)?;
    let action = action(own_name, item, *mutating, kinds, provider)?;
    let timeout = timeout(own_name, item)?;
    let description = match item.get("description") {
        None => described(own_name, *mutating, kinds),
        Some(Value::String(text)) if text.trim().is_empty() => described(own_name, *mutating, kinds),
        Some(Value::String(text)) => text.clone(),
        Some(other) => {
            let message = format!("description must be a string or left out, and is {}", json_type(other));
            return Err(bad_member(own_name, &message));
        }
    };
    let bad_schema =
        |what: String| SyncFault::new(SyncReason::BadSchema, format!("tool {}: parameters {what}", quoted(own_name)));
    let schema = item.get("parameters").ok_or_else(|| bad_schema("is missing".to_owned()))?;
    parameters::check(schema).map_err(bad_schema)?;
    Ok(ToolSpec {
        name,
        provider_name: own_name.to_owned(),
        title: None,
        description: Some(description),
        kind: if *mutating { ToolKind::Command } else { ToolKind::Query },
        input_schema: JsonText::of(schema),
        output_schema: None,
        // The source declares mutations, not risks.
        risk: None,
        requires_confirmation: false,
        llm_format: false,
        mutating: *mutating,
        timeout: Some(timeout),
        provider: Some(Arc::new(ProviderTerms {
            contract_version: provider.contract_version.clone(),
            languages: provider.languages.clone(),
            produces_evidence: kinds,
            action,
            receipt_retention: provider.receipt_retention,
        })),
        mcp: None,
        hash: sha256_hex(declared),
    })
}

/// `[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*`; the length is counted with the prefix.
fn check_name(own_name: &str) -> Result<(), SyncFault> {
    let word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    if own_name.split('.').all(word) {
        return Ok(());
    }
    let message = format!(
        "tool {}: a name is made of words joined by single dots; each begins with a lower-case letter and goes on with \
         lower-case letters, digits and '_'",
        quoted(own_name)
    );
    Err(SyncFault::new(SyncReason::BadName, message))
}

fn bad_member(own_name: &str, message: &str) -> SyncFault {
    bad_manifest(format!("tool {}: {message}", quoted(own_name)))
}

fn evidence_kinds(own_name: &str, item: &Map<String, Value>) -> Result<EvidenceKinds, SyncFault> {
    let Some(Value::Array(words)) = item.get("produces_evidence") else {
        return Err(bad_member(own_name, "produces_evidence must be a list of kinds of evidence"));
    };
    let kind = |word: &Value| {
        word.as_str().and_then(EvidenceKind::parse).ok_or_else(|| {
            let shown = word.as_str().map_or_else(|| json_type(word).to_owned(), quoted);
            let message = format!(
                "produces_evidence has {shown}; entity, value, action, reference and completeness are all there are"
            );
            bad_member(own_name, &message)
        })
    };
    words.iter().map(kind).collect()
}

/// What tells a mutation from a read has to agree in every place.
fn action(
    own_name: &str,
    item: &Map<String, Value>,
    mutating: bool,
    kinds: EvidenceKinds,
    provider: &Provider,
) -> Result<Option<String>, SyncFault> {
    let bad = |message: &str| Err(bad_member(own_name, message));
    let declared = item.get("action").filter(|action| !action.is_null());
    if !mutating {
        return match declared {
            Some(_) => bad("a tool that reads has no action; leave it out, or declare the tool mutating"),
            None if kinds.contains(EvidenceKind::Action) => {
                bad("a tool that reads gives no action evidence; take \"action\" out of produces_evidence")
            }
            None => Ok(None),
        };
    }
    let Some(name) = declared.and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        return bad("a mutating tool needs an action: the name its receipts carry");
    };
    if !provider.may_mutate {
        return bad("a mutating tool needs \"mutate\" among the capabilities of the manifest");
    }
    if !kinds.contains(EvidenceKind::Action) {
        return bad("a mutating tool needs \"action\" in its produces_evidence");
    }
    if provider.receipt_retention.is_none() {
        return bad("a mutating tool needs the manifest's receipt_retention_seconds");
    }
    Ok(Some(name.to_owned()))
}

fn timeout(own_name: &str, item: &Map<String, Value>) -> Result<Duration, SyncFault> {
    match item.get("timeout_ms").and_then(Value::as_u64) {
        Some(ms @ 1..=MAX_TIMEOUT_MS) => Ok(Duration::from_millis(ms)),
        Some(_) | None => {
            Err(bad_member(own_name, &format!("timeout_ms must be an integer from 1 to {MAX_TIMEOUT_MS}")))
        }
    }
}

/// The description of a tool that has none: its name, its mode and its evidence.
fn described(own_name: &str, mutating: bool, kinds: EvidenceKinds) -> String {
    let mode = if mutating { "changes something" } else { "only reads" };
    let kinds = kinds.words().collect::<Vec<_>>().join(", ");
    let evidence = if kinds.is_empty() { "no evidence".to_owned() } else { format!("evidence: {kinds}") };
    format!("{own_name}: {mode}; answers with {evidence}.")
}
