//! The tools a server lists. Each is checked on its own, so that one that is no good harms itself only.

use super::super::checks::{TakenNames, catalog_name, json_type, object, quoted, value_or_text};
use super::header_params;
use crate::domain::canonical::sha256_hex;
use crate::domain::endpoint::{EndpointSettings, SyncPolicy};
use crate::domain::json::JsonText;
use crate::domain::json_scan;
use crate::domain::manifest::{Manifest, SkippedTool, SyncFault, SyncReason};
use crate::domain::schema;
use crate::domain::tool::{DeclaredTool, Dialect, McpTool, ToolKind, ToolSpec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;

/// One answer to `tools/list`.
#[derive(Debug)]
pub struct Page {
    /// The tools, as they came.
    pub tools: Vec<Box<RawValue>>,
    /// What to ask on with; an empty text is a cursor too.
    pub next_cursor: Option<String>,
}

/// Reads one page.
pub fn decode_page(result: &RawValue) -> Result<Page, SyncFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members {
        tools: Vec<Box<RawValue>>,
        next_cursor: Option<String>,
    }
    let bad = || {
        SyncFault::new(
            SyncReason::BadManifest,
            "the result of tools/list must be an object with an array of tools, and a text as nextCursor if there is one",
        )
    };
    let said: Members = object(result.get().as_bytes()).ok_or_else(bad)?;
    Ok(Page { tools: said.tools, next_cursor: said.next_cursor })
}

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
    let annotations = annotations(own_name, item)?;
    let title = optional_text(own_name, item, "title")?;
    let read_only = flag(own_name, annotations, "readOnlyHint")?;
    let (input, input_schema) = input_schema(own_name, item)?;
    let bad_header = |sentence: String| bad_schema(own_name, "inputSchema", sentence);
    Ok(ToolSpec {
        name,
        provider_name: own_name.to_owned(),
        title: title.or(annotations.and_then(|map| map.get("title")).and_then(Value::as_str)).map(str::to_owned),
        description: optional_text(own_name, item, "description")?.map(str::to_owned),
        kind: if read_only { ToolKind::Query } else { ToolKind::Command },
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
            read_only,
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

fn bad_member(own_name: &str, member: &str, message: impl std::fmt::Display) -> SyncFault {
    SyncFault::new(SyncReason::BadManifest, format!("tool {}: {member} {message}", quoted(own_name)))
}

fn bad_schema(own_name: &str, member: &str, message: impl std::fmt::Display) -> SyncFault {
    SyncFault::new(SyncReason::BadSchema, format!("tool {}: {member} {message}", quoted(own_name)))
}

fn optional_text<'a>(own_name: &str, item: &'a Map<String, Value>, member: &str) -> Result<Option<&'a str>, SyncFault> {
    match item.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(bad_member(own_name, member, format!("must be a string and is {}", json_type(other)))),
    }
}

fn annotations<'a>(own_name: &str, item: &'a Map<String, Value>) -> Result<Option<&'a Map<String, Value>>, SyncFault> {
    match item.get("annotations") {
        None => Ok(None),
        Some(Value::Object(annotations)) => Ok(Some(annotations)),
        Some(other) => {
            Err(bad_member(own_name, "annotations", format!("must be an object and is {}", json_type(other))))
        }
    }
}

fn flag(own_name: &str, annotations: Option<&Map<String, Value>>, member: &str) -> Result<bool, SyncFault> {
    match annotations.and_then(|annotations| annotations.get(member)) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(bad_member(own_name, member, format!("must be true or false and is {}", json_type(other)))),
    }
}

fn input_schema<'a>(own_name: &str, item: &'a Map<String, Value>) -> Result<(&'a Value, JsonText), SyncFault> {
    const MEMBER: &str = "inputSchema";
    let schema = item.get(MEMBER).ok_or_else(|| bad_member(own_name, MEMBER, "is missing"))?;
    let takes_objects = match schema {
        Value::Object(members) => match members.get("type") {
            Some(Value::String(word)) => word == "object",
            Some(Value::Array(words)) => words.iter().any(|word| word == "object"),
            Some(_) | None => true,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    };
    // The schema's own faults come first: they say more ("int" is no type) than that no object would fit.
    check_schema(own_name, MEMBER, schema)?;
    if takes_objects {
        Ok((schema, JsonText::of(schema)))
    } else {
        Err(bad_schema(own_name, MEMBER, "must be a JSON Schema object that takes objects"))
    }
}

fn output_schema(own_name: &str, item: &Map<String, Value>) -> Result<Option<JsonText>, SyncFault> {
    let Some(schema) = item.get("outputSchema") else { return Ok(None) };
    check_schema(own_name, "outputSchema", schema)?;
    Ok(Some(JsonText::of(schema)))
}

fn check_schema(own_name: &str, member: &str, schema: &Value) -> Result<(), SyncFault> {
    match schema {
        Value::Bool(_) | Value::Object(_) => schema::check(schema, Dialect::Mcp.default_draft())
            .map_err(|fault| bad_schema(own_name, member, format!("is refused: {fault}"))),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(bad_schema(own_name, member, format!("must be a JSON Schema and is {}", json_type(schema))))
        }
    }
}
