//! The manifest: every rule of the source, all or nothing.

use super::super::OutboundRequest;
use super::super::checks::{TakenNames, catalog_name, json_type, object, quoted, value_or_text};
use super::schema_rules::check_input_schema;
use super::{VERSION, request};
use crate::domain::canonical::sha256_hex;
use crate::domain::endpoint::EndpointSettings;
use crate::domain::json::JsonText;
use crate::domain::manifest::{Manifest, SyncFault, SyncReason};
use crate::domain::risk::Risk;
use crate::domain::tool::{DeclaredTool, ToolKind, ToolSpec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Most tools of one manifest.
const MAX_TOOLS: usize = 20;

/// Longest description, in UTF-16 units.
const MAX_DESCRIPTION: usize = 500;

/// Names of Median's own tools, exactly as written.
const RESERVED_NAMES: [&str; 12] = [
    "searchKnowledgeBase",
    "searchPastConversations",
    "requestHandoff",
    "saveVisitorDetails",
    "resolveConversation",
    "closeConversation",
    "suggestKnowledge",
    "suggestTool",
    "reportBug",
    "suggestImprovement",
    "searchSignals",
    "requestScreenshot",
];

/// The members of a tool; there are no others.
const TOOL_MEMBERS: [&str; 4] = ["name", "description", "risk", "inputSchema"];

/// The request that fetches the manifest.
pub fn encode_manifest_request(settings: &EndpointSettings) -> OutboundRequest {
    request(settings, Vec::new())
}

/// The members of a manifest that mean something here; others are ignored.
#[derive(Deserialize)]
struct ManifestBody<'a> {
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    diagnostics: Option<&'a RawValue>,
}

/// Checks a manifest body. One bad tool refuses it whole: this dialect knows no other policy.
pub fn decode_manifest(settings: &EndpointSettings, body: &[u8]) -> Result<Manifest, SyncFault> {
    let bad_manifest = |message: &str| SyncFault::new(SyncReason::BadManifest, message);
    let whole: &RawValue = serde_json::from_slice(body)
        .map_err(|error| SyncFault::new(SyncReason::NotJson, format!("the manifest is not JSON: {error}")))?;
    let manifest: ManifestBody<'_> = object(body)
        .ok_or_else(|| bad_manifest("the manifest must be one JSON object in which no member stands twice"))?;
    let tools = manifest.tools.ok_or_else(|| bad_manifest("the manifest has no tools"))?;
    // The text decides: 1.0 and "1" are not the integer 1.
    if manifest.version.map(RawValue::get) != Some("1") {
        return Err(SyncFault::new(
            SyncReason::UnsupportedVersion,
            format!("version must be exactly the integer {VERSION}"),
        ));
    }
    let diagnostics = match manifest.diagnostics.map(RawValue::get) {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(bad_manifest("diagnostics must be true or false, or left out")),
    };
    let items: Vec<&RawValue> =
        serde_json::from_str(tools.get()).map_err(|_| bad_manifest("tools must be an array"))?;
    if items.len() > MAX_TOOLS {
        return Err(SyncFault::new(
            SyncReason::TooManyTools,
            format!("the manifest has {} tools; {MAX_TOOLS} are allowed", items.len()),
        ));
    }
    let mut names = TakenNames::default();
    let tools = items
        .iter()
        .enumerate()
        .map(|(index, raw)| read_item(settings.name_prefix.as_deref(), &mut names, index, raw))
        .collect::<Result<_, _>>()?;
    Ok(Manifest {
        tools,
        skipped: Vec::new(),
        hash: sha256_hex(&value_or_text(whole.get())),
        diagnostics,
        etag: None,
        protocol_version: None,
    })
}

fn read_item(
    prefix: Option<&str>,
    names: &mut TakenNames,
    index: usize,
    raw: &RawValue,
) -> Result<DeclaredTool, SyncFault> {
    let bad_manifest = |message: String| SyncFault::new(SyncReason::BadManifest, message);
    let declared: Value = serde_json::from_str(raw.get())
        .map_err(|error| bad_manifest(format!("tool {index} of the manifest cannot be read: {error}")))?;
    let Some(item) = declared.as_object() else {
        return Err(bad_manifest(format!(
            "tool {index} of the manifest must be an object and is {}",
            json_type(&declared)
        )));
    };
    let own_name = read_name(index, item)?;
    let name = catalog_name(prefix, own_name)?;
    names.take(&name)?;
    if let Some(unknown) = item.keys().find(|member| !TOOL_MEMBERS.contains(&member.as_str())) {
        return Err(bad_manifest(format!("tool {}: the member {} is unknown", quoted(own_name), quoted(unknown))));
    }
    let description = read_description(own_name, item)?;
    let risk = item.get("risk").and_then(Value::as_str).and_then(Risk::parse).ok_or_else(|| {
        let message = format!("tool {}: risk must be low, medium, reviewed or high", quoted(own_name));
        SyncFault::new(SyncReason::BadRisk, message)
    })?;
    let bad_schema =
        |what: String| SyncFault::new(SyncReason::BadSchema, format!("tool {}: inputSchema {what}", quoted(own_name)));
    let schema = item.get("inputSchema").ok_or_else(|| bad_schema("is missing".to_owned()))?;
    check_input_schema(schema).map_err(bad_schema)?;
    let spec = ToolSpec {
        name,
        provider_name: own_name.to_owned(),
        title: None,
        description: Some(description.to_owned()),
        kind: ToolKind::Query,
        input_schema: JsonText::of(schema),
        output_schema: None,
        risk: Some(risk),
        requires_confirmation: false,
        llm_format: false,
        mutating: false,
        timeout: None,
        provider: None,
        mcp: None,
        hash: sha256_hex(&declared),
    };
    Ok(DeclaredTool { spec, declared })
}

/// `[a-zA-Z][a-zA-Z0-9_]*`, and none of Median's own; the length is counted with the prefix.
fn read_name(index: usize, item: &Map<String, Value>) -> Result<&str, SyncFault> {
    let bad_name = |message: String| SyncFault::new(SyncReason::BadName, message);
    let name = item
        .get("name")
        .and_then(Value::as_str)
        .ok_or_else(|| bad_name(format!("tool {index} of the manifest: name must be a string")))?;
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !begins || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(bad_name(format!(
            "tool {}: a name begins with a letter and goes on with letters, digits and '_'",
            quoted(name)
        )));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(SyncFault::new(
            SyncReason::ReservedName,
            format!("tool {}: the name is reserved for one of Median's own tools", quoted(name)),
        ));
    }
    Ok(name)
}

fn read_description<'a>(own_name: &str, item: &'a Map<String, Value>) -> Result<&'a str, SyncFault> {
    let bad = |what: String| {
        SyncFault::new(SyncReason::BadDescription, format!("tool {}: description {what}", quoted(own_name)))
    };
    let text = item.get("description").and_then(Value::as_str).ok_or_else(|| bad("must be a string".to_owned()))?;
    match text.encode_utf16().count() {
        0 => Err(bad("is empty".to_owned())),
        1..=MAX_DESCRIPTION => Ok(text),
        length => Err(bad(format!("has {length} UTF-16 units; {MAX_DESCRIPTION} are allowed"))),
    }
}
