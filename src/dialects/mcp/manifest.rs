//! The tools a server lists. Each is checked on its own, so that one that is no good harms itself only.

use super::super::checks::{TakenNames, catalog_name, json_type, quoted, value_or_text};
use super::pages::Page;
use super::{header_params, members};
use crate::domain::canonical::sha256_hex;
use crate::domain::endpoint::{EndpointSettings, SyncPolicy};
use crate::domain::json::JsonText;
use crate::domain::json_scan;
use crate::domain::manifest::{Manifest, SkippedTool, SyncFault, SyncReason};
use crate::domain::schema;
use crate::domain::tool::{DeclaredTool, Dialect, McpTool, ToolKind, ToolSpec};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Checks the tools of all pages.
pub fn decode_tools(settings: &EndpointSettings, pages: &[Page]) -> Result<Manifest, SyncFault> {
    let tools: Vec<&RawValue> = pages.iter().flat_map(|page| &page.tools).map(|tool| &**tool).collect();
    let hashed = Value::Array(tools.iter().map(|tool| value_or_text(tool.get())).collect());
    let mut manifest = Manifest {
        tools: Vec::with_capacity(tools.len()),
        skipped: Vec::new(),
        hash: sha256_hex(&hashed),
        diagnostics: false,
        etag: None,
        protocol_version: None,
    };
    let mut names = TakenNames::default();
    for (index, raw) in tools.into_iter().enumerate() {
        match read_tool(settings.name_prefix.as_deref(), &mut names, index, raw) {
            Ok(tool) => manifest.tools.push(tool),
            Err(skipped) => match settings.sync_policy {
                SyncPolicy::Reject => return Err(skipped.fault),
                SyncPolicy::Skip => manifest.skipped.push(skipped),
            },
        }
    }
    Ok(manifest)
}

fn read_tool(
    prefix: Option<&str>,
    names: &mut TakenNames,
    index: usize,
    raw: &RawValue,
) -> Result<DeclaredTool, SkippedTool> {
    let place = format!("tool {index}");
    let at_place =
        |message: String| SkippedTool { tool: place.clone(), fault: SyncFault::new(SyncReason::BadManifest, message) };
    // What one reader takes for the name or the schema has to be that for every reader: the text is handed on.
    json_scan::scan_structure(raw.get().as_bytes())
        .map_err(|fault| at_place(format!("{place} of the list cannot be taken: {fault}")))?;
    let declared: Value = serde_json::from_str(raw.get())
        .map_err(|error| at_place(format!("{place} of the list cannot be read: {error}")))?;
    let Some(item) = declared.as_object() else {
        return Err(at_place(format!("{place} of the list must be an object and is {}", json_type(&declared))));
    };
    let Some(own_name) = item.get("name").and_then(Value::as_str) else {
        return Err(at_place(format!("{place} of the list has no name that is a string")));
    };
    let bad = |fault: SyncFault| SkippedTool { tool: own_name.to_owned(), fault };
    let spec = spec_of(prefix, own_name, item, &declared, raw).map_err(bad)?;
    // Last, so that a tool that is left out for another reason takes no name.
    names.take(&spec.name).map_err(bad)?;
    Ok(DeclaredTool { spec, declared })
}

fn spec_of(
    prefix: Option<&str>,
    own_name: &str,
    item: &Map<String, Value>,
    declared: &Value,
    raw: &RawValue,
) -> Result<ToolSpec, SyncFault> {
    check_name(own_name)?;
    let name = catalog_name(prefix, own_name)?;
    let members = members::read(item).map_err(|message| bad_member(own_name, message))?;
    let (input, input_schema) = input_schema(own_name, item)?;
    let bad_header = |sentence: String| bad_schema(own_name, "inputSchema", sentence);
    Ok(ToolSpec {
        name,
        provider_name: own_name.to_owned(),
        title: members.title.map(str::to_owned),
        description: members.description.map(str::to_owned),
        kind: if members.read_only { ToolKind::Query } else { ToolKind::Command },
        output_schema: output_schema(own_name, item)?,
        // The tenant says it, not the server.
        risk: None,
        requires_confirmation: false,
        llm_format: false,
        mutating: false,
        timeout: None,
        provider: None,
        mcp: Some(Arc::new(McpTool {
            declared: JsonText::from(raw.to_owned()),
            read_only: members.read_only,
            header_params: header_params::declared(input).map_err(bad_header)?,
        })),
        input_schema,
        hash: sha256_hex(declared),
    })
}

fn check_name(own_name: &str) -> Result<(), SyncFault> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if own_name.is_empty() || !own_name.bytes().all(allowed) {
        return Err(SyncFault::new(
            SyncReason::BadName,
            format!("tool {}: a name is made of letters, digits, '_', '.' and '-'", quoted(own_name)),
        ));
    }
    Ok(())
}

fn bad_member(own_name: &str, message: String) -> SyncFault {
    SyncFault::new(SyncReason::BadManifest, format!("tool {}: {message}", quoted(own_name)))
}

fn bad_schema(own_name: &str, member: &str, message: impl std::fmt::Display) -> SyncFault {
    SyncFault::new(SyncReason::BadSchema, format!("tool {}: {member} {message}", quoted(own_name)))
}

fn input_schema<'a>(own_name: &str, item: &'a Map<String, Value>) -> Result<(&'a Value, JsonText), SyncFault> {
    const MEMBER: &str = "inputSchema";
    let schema = item.get(MEMBER).ok_or_else(|| bad_member(own_name, format!("{MEMBER} is missing")))?;
    // The schema's own faults come first: they say more ("int" is no type) than that it is not the right one.
    check_schema(own_name, MEMBER, schema)?;
    // One that says nothing of it takes objects as well as any, and is shown with the type that clients look for.
    match schema.get("type") {
        None => {}
        Some(Value::String(word)) if word == "object" => {}
        Some(_) => return Err(bad_schema(own_name, MEMBER, "must have the type \"object\"")),
    }
    Ok((schema, JsonText::of(schema)))
}

fn output_schema(own_name: &str, item: &Map<String, Value>) -> Result<Option<JsonText>, SyncFault> {
    let Some(schema) = item.get("outputSchema") else { return Ok(None) };
    check_schema(own_name, "outputSchema", schema)?;
    Ok(Some(JsonText::of(schema)))
}

fn check_schema(own_name: &str, member: &str, schema: &Value) -> Result<(), SyncFault> {
    if !schema.is_object() {
        return Err(bad_schema(own_name, member, format!("must be an object and is {}", json_type(schema))));
    }
    schema::check(schema, Dialect::Mcp.default_draft())
        .map_err(|fault| bad_schema(own_name, member, format!("is refused: {fault}")))
}
