//! The manifest: a JSON array of tools, fetched or given at registration.
//!
//! Each item is read on its own, so that one that is broken (a schema nobody can compile, a number no parser can hold)
//! harms itself only, where the endpoint's policy lets the others through.

use super::super::checks::{TakenNames, catalog_name, json_type, quoted, value_or_text};
use super::super::{Method, OutboundRequest};
use super::{ID_PREFIX, auth_header};
use crate::domain::canonical::sha256_hex;
use crate::domain::endpoint::{EndpointSettings, SyncPolicy};
use crate::domain::json::JsonText;
use crate::domain::manifest::{Manifest, SkippedTool, SyncFault, SyncReason};
use crate::domain::risk::Risk;
use crate::domain::schema;
use crate::domain::tool::{DeclaredTool, Dialect, ToolKind, ToolSpec};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::Duration;

/// Largest `timeout_ms` of a tool: no run may take longer.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// The request that fetches the manifest.
pub fn encode_manifest_request(settings: &EndpointSettings) -> OutboundRequest {
    OutboundRequest {
        method: Method::Get,
        url: format!("{}/mcp/manifest.json", settings.base_url),
        headers: auth_header(settings).into_iter().collect(),
        body: Bytes::new(),
        median_signature: false,
    }
}

/// Checks a manifest body: the array as fetched, or the tools given at registration.
pub fn decode_manifest(settings: &EndpointSettings, body: &[u8]) -> Result<Manifest, SyncFault> {
    let (text, items) = read_items(settings.inline_manifest.is_some(), body)?;
    let mut manifest = Manifest {
        tools: Vec::new(),
        skipped: Vec::new(),
        hash: sha256_hex(&value_or_text(text)),
        diagnostics: false,
        etag: None,
        protocol_version: None,
    };
    let mut names = TakenNames::default();
    for (index, raw) in items.iter().enumerate() {
        match read_item(settings.name_prefix.as_deref(), &mut names, index, raw) {
            Ok(tool) => manifest.tools.push(tool),
            Err(Refusal::NotOurs(skipped)) => manifest.skipped.push(skipped),
            Err(Refusal::Bad(skipped)) => match settings.sync_policy {
                SyncPolicy::Reject => return Err(skipped.fault),
                SyncPolicy::Skip => manifest.skipped.push(skipped),
            },
        }
    }
    Ok(manifest)
}

/// The body as text, and its items.
fn read_items(inline: bool, body: &[u8]) -> Result<(&str, Vec<&RawValue>), SyncFault> {
    /// How a registration gives its tools.
    #[derive(Deserialize)]
    struct InlineTools<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
    }

    let not_json = |what: String| SyncFault::new(SyncReason::NotJson, format!("the manifest is not JSON: {what}"));
    let text = std::str::from_utf8(body).map_err(|error| not_json(error.to_string()))?;
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| not_json(error.to_string()))?;
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(whole.get()) {
        return Ok((text, items));
    }
    match serde_json::from_str::<InlineTools<'_>>(whole.get()) {
        Ok(object) if inline => Ok((text, object.tools)),
        Ok(_) | Err(_) => {
            Err(SyncFault::new(SyncReason::BadManifest, "the manifest must be a JSON array of tools and is not"))
        }
    }
}

/// Why an item is no tool of the catalog.
enum Refusal {
    /// It is no topology tool: left out under every policy.
    NotOurs(SkippedTool),
    /// It is one and breaks a rule: the endpoint's policy decides.
    Bad(SkippedTool),
}

fn read_item(
    prefix: Option<&str>,
    names: &mut TakenNames,
    index: usize,
    raw: &RawValue,
) -> Result<DeclaredTool, Refusal> {
    let place = format!("item {index}");
    let bad = |tool: &str, fault: SyncFault| Refusal::Bad(SkippedTool { tool: tool.to_owned(), fault });
    let bad_manifest = |message: String| bad(&place, SyncFault::new(SyncReason::BadManifest, message));

    let declared: Value = serde_json::from_str(raw.get())
        .map_err(|error| bad_manifest(format!("{place} of the manifest cannot be read: {error}")))?;
    let Some(item) = declared.as_object() else {
        return Err(bad_manifest(format!("{place} of the manifest must be an object and is {}", json_type(&declared))));
    };
    let id = match item.get("id") {
        Some(Value::String(id)) => id,
        Some(other) => {
            return Err(bad_manifest(format!(
                "{place} of the manifest: id must be a string and is {}",
                json_type(other)
            )));
        }
        None => return Err(bad_manifest(format!("{place} of the manifest: id is missing"))),
    };
    // What is no topology tool is another system's business: its other members are not looked at.
    let (own_name, kind) = match offer(id, item).map_err(|fault| bad(id, fault))? {
        Offer::Tool(own_name, kind) => (own_name, kind),
        Offer::NotOurs(fault) => return Err(Refusal::NotOurs(SkippedTool { tool: id.clone(), fault })),
    };
    let spec = read_tool(prefix, own_name, kind, item, &declared).map_err(|fault| bad(own_name, fault))?;
    // Last, so that a tool that is left out for another reason takes no name.
    names.take(&spec.name).map_err(|fault| bad(own_name, fault))?;
    Ok(DeclaredTool { spec, declared })
}

/// Whether an item is meant for this gateway.
enum Offer<'a> {
    /// A topology tool: its bare name and kind.
    Tool(&'a str, ToolKind),
    /// None: a warning says why.
    NotOurs(SyncFault),
}

fn offer<'a>(id: &'a str, item: &Map<String, Value>) -> Result<Offer<'a>, SyncFault> {
    let not_ours = |message: String| Ok(Offer::NotOurs(SyncFault::new(SyncReason::BadManifest, message)));
    let Some(own_name) = id.strip_prefix(ID_PREFIX) else {
        return not_ours(format!("item {}: the id is not {ID_PREFIX}NAME, so the item is left out", quoted(id)));
    };
    let word = required_text(own_name, item, "kind")?;
    match ToolKind::parse(word) {
        Some(kind) => Ok(Offer::Tool(own_name, kind)),
        None => not_ours(format!(
            "tool {}: the kind {} is neither query nor command, so the item is left out",
            quoted(own_name),
            quoted(word)
        )),
    }
}

fn read_tool(
    prefix: Option<&str>,
    own_name: &str,
    kind: ToolKind,
    item: &Map<String, Value>,
    declared: &Value,
) -> Result<ToolSpec, SyncFault> {
    check_name(own_name)?;
    let name = catalog_name(prefix, own_name)?;
    let title = required_text(own_name, item, "title")?;
    let description = required_text(own_name, item, "description")?;
    let input_schema = input_schema(own_name, item)?;
    let output_schema = output_schema(own_name, item)?;
    Ok(ToolSpec {
        name,
        provider_name: own_name.to_owned(),
        title: Some(title.to_owned()),
        description: Some(description.to_owned()),
        kind,
        input_schema,
        output_schema,
        risk: risk(own_name, item)?,
        requires_confirmation: flag(own_name, item, "requires_confirmation")?,
        llm_format: flag(own_name, item, "llm_format")?,
        // The source declares kinds, not mutations.
        mutating: false,
        timeout: timeout(own_name, item)?,
        provider: None,
        mcp: None,
        hash: sha256_hex(declared),
    })
}

/// `[a-z0-9]+(-[a-z0-9]+)*`; the length is counted with the prefix.
fn check_name(own_name: &str) -> Result<(), SyncFault> {
    let bad_name = |message: String| Err(SyncFault::new(SyncReason::BadName, message));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !own_name.split('-').all(word) {
        return bad_name(format!(
            "tool {}: a name is made of lower-case letters and digits, in words joined by single hyphens",
            quoted(own_name)
        ));
    }
    Ok(())
}

fn bad_member(own_name: &str, member: &str, message: impl std::fmt::Display) -> SyncFault {
    SyncFault::new(SyncReason::BadManifest, format!("tool {}: {member} {message}", quoted(own_name)))
}

fn required_text<'a>(own_name: &str, item: &'a Map<String, Value>, member: &str) -> Result<&'a str, SyncFault> {
    match item.get(member) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(bad_member(own_name, member, format!("must be a string and is {}", json_type(other)))),
        None => Err(bad_member(own_name, member, "is missing")),
    }
}

/// An optional member that says yes or no. `null` is neither: where consent hangs on it, nothing is guessed.
fn flag(own_name: &str, item: &Map<String, Value>, member: &str) -> Result<bool, SyncFault> {
    match item.get(member) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => {
            Err(bad_member(own_name, member, format!("must be true or false or left out, and is {}", json_type(other))))
        }
    }
}

fn risk(own_name: &str, item: &Map<String, Value>) -> Result<Option<Risk>, SyncFault> {
    let Some(declared) = item.get("risk") else {
        return Ok(None);
    };
    declared.as_str().and_then(Risk::parse).map(Some).ok_or_else(|| {
        SyncFault::new(
            SyncReason::BadRisk,
            format!("tool {}: risk must be low, medium, reviewed or high, or left out", quoted(own_name)),
        )
    })
}

fn timeout(own_name: &str, item: &Map<String, Value>) -> Result<Option<Duration>, SyncFault> {
    match item.get("timeout_ms").map(Value::as_u64) {
        None => Ok(None),
        Some(Some(ms @ 1..=MAX_TIMEOUT_MS)) => Ok(Some(Duration::from_millis(ms))),
        Some(_) => Err(bad_member(
            own_name,
            "timeout_ms",
            format!("must be an integer from 1 to {MAX_TIMEOUT_MS}, or left out"),
        )),
    }
}

fn input_schema(own_name: &str, item: &Map<String, Value>) -> Result<JsonText, SyncFault> {
    let schema = item.get("input_schema").ok_or_else(|| bad_member(own_name, "input_schema", "is missing"))?;
    // Arguments are an object: a schema that takes none would make a tool nobody can call.
    let takes_objects = match schema {
        Value::Bool(anything) => *anything,
        Value::Object(members) => match members.get("type") {
            Some(Value::String(word)) => word == "object",
            Some(Value::Array(words)) => words.iter().any(|word| word == "object"),
            Some(_) | None => true,
        },
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    };
    // The schema's own faults come first: they say more ("int" is no type) than that no object would fit.
    check_schema(own_name, "input_schema", schema)?;
    if takes_objects {
        Ok(JsonText::of(schema))
    } else {
        Err(bad_schema(own_name, "input_schema", "must be a JSON Schema that takes objects"))
    }
}

fn output_schema(own_name: &str, item: &Map<String, Value>) -> Result<Option<JsonText>, SyncFault> {
    let Some(schema) = item.get("output_schema") else {
        return Ok(None);
    };
    check_schema(own_name, "output_schema", schema)?;
    Ok(Some(JsonText::of(schema)))
}

fn check_schema(own_name: &str, member: &str, schema: &Value) -> Result<(), SyncFault> {
    match schema {
        Value::Bool(_) | Value::Object(_) => schema::check(schema, Dialect::Topology.default_draft())
            .map_err(|fault| bad_schema(own_name, member, format!("is refused: {fault}"))),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(bad_schema(own_name, member, format!("must be a JSON Schema and is {}", json_type(schema))))
        }
    }
}

fn bad_schema(own_name: &str, member: &str, message: impl std::fmt::Display) -> SyncFault {
    SyncFault::new(SyncReason::BadSchema, format!("tool {}: {member} {message}", quoted(own_name)))
}
