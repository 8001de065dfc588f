//! One tool as MCP clients are shown it.
//!
//! What an MCP server declared is handed on with every member it has, but for the name. Any other tool is described in
//! the protocol's words. One tool that a client's library cannot read costs it the whole list, so what every library
//! demands is there: an input schema is an object whose root says `"type":"object"`.

use super::members::{Members, quoted};
use crate::domain::naming;
use crate::domain::risk::Risk;
use crate::domain::tool::{Dialect, McpTool, ToolKind};
use crate::engine::catalog::{CatalogTool, ShownTo};

const OBJECT: &str = r#""object""#;

/// The JSON of a tool.
pub(super) fn of(tool: &CatalogTool, era: ShownTo) -> String {
    match &tool.spec.mcp {
        Some(mcp) => declared(tool, mcp, era),
        None => described(tool, era),
    }
}

/// The name that clients see.
pub(super) fn shown_name(tool: &CatalogTool) -> String {
    naming::without_dots(&tool.spec.name)
}

fn declared(tool: &CatalogTool, mcp: &McpTool, era: ShownTo) -> String {
    // It was an object when it was synced.
    let Some(mut members) = Members::of(mcp.declared.as_str()) else { return described(tool, era) };
    members.set("name", quoted(&shown_name(tool)));
    if era == ShownTo::Legacy {
        let input = members.get("inputSchema").filter(|schema| !has_object_root(schema.get()));
        if let Some(mended) = input.map(|schema| with_object_root(schema.get())) {
            members.set("inputSchema", mended);
        }
        // That era's clients read no other results.
        if members.get("outputSchema").is_some_and(|schema| !has_object_root(schema.get())) {
            members.remove("outputSchema");
        }
    }
    members.to_text()
}

fn described(tool: &CatalogTool, era: ShownTo) -> String {
    let spec = &tool.spec;
    let mut text = format!(r#"{{"name":{}"#, quoted(&shown_name(tool)));
    let mut put = |name: &str, json: &str| text.push_str(&format!(r#","{name}":{json}"#));
    if let Some(title) = &spec.title {
        put("title", &quoted(title));
    }
    if let Some(description) = &spec.description {
        put("description", &quoted(description));
    }
    let dialect = tool.endpoint.settings.dialect;
    put("inputSchema", &with_draft(&with_object_root(spec.input_schema.as_str()), dialect));
    if let Some(schema) = shown_output_schema(tool, era) {
        put("outputSchema", &with_draft(schema, dialect));
    }
    put("annotations", &annotations(tool));
    text.push('}');
    text
}

/// Whether clients of this era hold results against an output schema.
pub(super) fn shows_output_schema(tool: &CatalogTool, era: ShownTo) -> bool {
    shown_output_schema(tool, era).is_some()
}

/// Clients of the earlier era read no results but objects.
fn shown_output_schema(tool: &CatalogTool, era: ShownTo) -> Option<&str> {
    let schema = tool.spec.output_schema.as_ref().map(|schema| schema.as_str()).filter(|_| answers(tool))?;
    (era == ShownTo::Modern || has_object_root(schema)).then_some(schema)
}

/// Whether a call ever gives what the output schema describes: a topology's command is only started.
fn answers(tool: &CatalogTool) -> bool {
    match tool.endpoint.settings.dialect {
        Dialect::Topology => tool.spec.kind == ToolKind::Query,
        Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => true,
    }
}

/// What a client may think of a call. Only a provider's word that is believed makes a plain read. A mutation with a
/// receipt has its effect once only under an `Idempotency-Key`, which a model does not send: to it no mutation is
/// idempotent.
fn annotations(tool: &CatalogTool) -> String {
    let reads = tool.is_plain_read();
    let asks = match tool.endpoint.settings.dialect {
        Dialect::Topology => tool.spec.kind == ToolKind::Query,
        Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => false,
    };
    let is_harmless = reads || tool.risk == Some(Risk::Low) || (asks && !tool.spec.mutating && tool.risk.is_none());
    let destroys = !is_harmless;
    format!(r#"{{"readOnlyHint":{reads},"destructiveHint":{destroys},"idempotentHint":{reads}}}"#)
}

fn has_object_root(schema: &str) -> bool {
    Members::of(schema).is_some_and(|members| members.is("type", OBJECT))
}

/// The same schema for arguments, which are an object whatever it says.
fn with_object_root(schema: &str) -> String {
    match Members::of(schema) {
        Some(mut members) => {
            members.set("type", OBJECT.to_owned());
            members.to_text()
        }
        None if schema.trim() == "false" => r#"{"type":"object","not":{}}"#.to_owned(),
        None => r#"{"type":"object"}"#.to_owned(),
    }
}

/// A schema that names no draft is one of 2020-12 in this protocol, and one of draft-07 where a topology declares it.
fn with_draft(schema: &str, dialect: Dialect) -> String {
    match (dialect, Members::of(schema)) {
        (Dialect::Topology, Some(mut members)) if members.get("$schema").is_none() => {
            members.set("$schema", r#""http://json-schema.org/draft-07/schema#""#.to_owned());
            members.to_text()
        }
        (Dialect::Topology | Dialect::AgentProvider | Dialect::Median | Dialect::Mcp, _) => schema.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_for_arguments_says_that_it_is_for_objects() {
        for (schema, shown) in [
            ("true", r#"{"type":"object"}"#),
            ("false", r#"{"type":"object","not":{}}"#),
            ("{}", r#"{"type":"object"}"#),
            (r#"{"properties":{"a":{"type":"string"}}}"#, r#"{"properties":{"a":{"type":"string"}},"type":"object"}"#),
            (r#"{"type":["object","null"]}"#, r#"{"type":"object"}"#),
            (r#"{"type":"object","x":1.0}"#, r#"{"type":"object","x":1.0}"#),
        ] {
            assert_eq!(with_object_root(schema), shown);
        }
    }

    #[test]
    fn a_topologys_schema_names_its_draft() {
        let named = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema"}"#;
        assert_eq!(with_draft(named, Dialect::Topology), named);
        assert_eq!(with_draft("{}", Dialect::Topology), r#"{"$schema":"http://json-schema.org/draft-07/schema#"}"#);
        assert_eq!(with_draft("{}", Dialect::Median), "{}");
        assert_eq!(with_draft("true", Dialect::Topology), "true");
    }
}
