//! Calls: of a tool that nobody has, and of the one the developer names.

use super::super::manifest::Offered;
use super::super::report::Rule;
use super::super::session::Session;
use super::super::{CheckOptions, SampleCall, sample};
use super::exchange::{Reply, ask, judge, with_body, with_header};
use crate::dialects::OutboundRequest;
use crate::dialects::mcp::words::HEADER_MISMATCH;
use crate::dialects::mcp::{self, Dialogue, ToolCall, ToolResult};
use crate::domain::endpoint::EndpointSettings;
use crate::domain::json::JsonText;
use crate::domain::schema::CompiledSchema;
use crate::domain::tool::{Dialect, ToolSpec};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A name that no server has.
const NO_SUCH_TOOL: &str = "no_such_tool_of_toolgate_check";

const ANSWER: Rule = Rule::new("§11.2", "call: answer", "HTTP 200 and a JSON-RPC result in the same exchange");
const FORM: Rule = Rule::new(
    "§11.2",
    "call: form",
    "content, a list of objects with a type; isError true or false if any; no questions, as nobody can be asked",
);
const OUTPUT: Rule = Rule::new("§11.2", "call: structured content", "what the tool's outputSchema says");
const HEADER: Rule =
    Rule::new("§11.2", "call: another Mcp-Param header than the argument", "HTTP 400 and the JSON-RPC error -32020");
const RULES: [Rule; 3] = [ANSWER, FORM, OUTPUT];

/// Tells that nothing is called; without a dialogue, no era's own rule is told.
pub(super) fn skip(session: &mut Session<'_>, dialogue: Option<&Dialogue>, why: &str) {
    session.report.skip_all(&RULES, why);
    if dialogue == Some(&Dialogue::Modern) {
        session.report.skip(HEADER, why);
    }
}

fn nothing() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an object without members is JSON")
}

fn call_of(
    settings: &EndpointSettings,
    dialogue: &Dialogue,
    id: u64,
    tool: &ToolSpec,
    arguments: &JsonText,
) -> OutboundRequest {
    let capabilities = nothing();
    let call = ToolCall {
        tool,
        arguments: Some(arguments),
        capabilities: &capabilities,
        progress_token: None,
        input_responses: None,
        request_state: None,
    };
    mcp::encode_call(settings, dialogue, id, &call)
}

/// The call of a tool that nobody has.
pub(super) fn no_such_call(settings: &EndpointSettings, dialogue: &Dialogue, id: u64) -> OutboundRequest {
    let request = mcp::encode_list(settings, dialogue, id, None);
    let request = match dialogue {
        Dialogue::Modern => {
            with_header(with_header(request, "mcp-method", Some("tools/call")), "mcp-name", Some(NO_SUCH_TOOL))
        }
        Dialogue::Legacy { .. } => request,
    };
    with_body(request, |body| {
        body["method"] = json!("tools/call");
        body["params"]["name"] = json!(NO_SUCH_TOOL);
        body["params"]["arguments"] = json!({});
    })
}

/// Makes the call the developer asks to see.
pub(super) async fn check(session: &mut Session<'_>, options: &CheckOptions, dialogue: &Dialogue, offered: &Offered) {
    let Some((tool, sample)) = sample::pick(&mut session.report, options, offered) else {
        return skip(session, Some(dialogue), "there is nothing to call");
    };
    if sample::may_change(Dialect::Mcp, tool) && !options.allow_mutations {
        return skip(
            session,
            Some(dialogue),
            "it has no readOnlyHint and may change something: allow it with --allow-mutations",
        );
    }
    run(session, dialogue, tool, sample).await;
    if *dialogue == Dialogue::Modern {
        other_header(session, tool, sample).await;
    }
}

async fn run(session: &mut Session<'_>, dialogue: &Dialogue, tool: &ToolSpec, sample: &SampleCall) {
    let request = call_of(&session.settings, dialogue, 30, tool, &sample.arguments);
    let reply = match ask(session, &request, 30).await {
        Ok(reply) => reply,
        Err(sentence) => {
            session.report.fail(ANSWER, sentence);
            return session.report.skip_all(&[FORM, OUTPUT], "there is no answer");
        }
    };
    let Some(result) = reply.result().filter(|_| reply.answer.status == 200) else {
        session.report.fail(ANSWER, reply.account());
        return session.report.skip_all(&[FORM, OUTPUT], "there is no result");
    };
    session.report.ok(ANSWER, format!("one after {} ms", reply.answer.took.as_millis()));
    match mcp::decode_result(result) {
        ToolResult::Complete(_) => judge_result(session, tool, &reply),
        ToolResult::InputRequired { input_requests: None, .. } => {
            session.report.skip_all(&[FORM, OUTPUT], "the server wants the call again later");
        }
        ToolResult::InputRequired { input_requests: Some(_), .. } => {
            session.report.fail(FORM, "questions, though the client declares that nobody can be asked");
            session.report.skip(OUTPUT, "the call is not over");
        }
        ToolResult::Unclear(sentence) => {
            session.report.fail(FORM, sentence);
            session.report.skip(OUTPUT, "the result cannot be read");
        }
    }
}

fn judge_result(session: &mut Session<'_>, tool: &ToolSpec, reply: &Reply) {
    let said = reply.result_value();
    let blocks = said["content"].as_array();
    let has_form = blocks.is_some_and(|blocks| blocks.iter().all(|block| block["type"].is_string()));
    session.report.judge(FORM, has_form, reply.account());
    if said["isError"] == json!(true) {
        return session.report.skip(OUTPUT, "the tool reports an error of its own");
    }
    match &tool.output_schema {
        None => session.report.ok(OUTPUT, "any: the tool declares no outputSchema"),
        Some(schema) => match fits(schema, said.get("structuredContent")) {
            Ok(()) => session.report.ok(OUTPUT, "that"),
            Err(sentence) => session.report.fail(OUTPUT, sentence),
        },
    }
}

fn fits(schema: &JsonText, content: Option<&Value>) -> Result<(), String> {
    let content = content.ok_or("no structuredContent")?;
    let schema =
        CompiledSchema::compile_text(schema, Dialect::Mcp.default_draft()).map_err(|fault| fault.to_string())?;
    schema.validate(content).map_err(|errors| {
        errors.iter().map(|error| format!("{}: {}", error.pointer, error.message)).collect::<Vec<_>>().join(" | ")
    })
}

/// Repeats the call with a header that says something else than its argument.
async fn other_header(session: &mut Session<'_>, tool: &ToolSpec, sample: &SampleCall) {
    let mut request = call_of(&session.settings, &Dialogue::Modern, 31, tool, &sample.arguments);
    match request.headers.iter_mut().find(|(name, _)| name.starts_with("mcp-param-")) {
        None => session.report.skip(HEADER, "no argument of the call stands in a header"),
        Some((_, value)) => {
            *value = "toolgate-check-another-value".to_owned();
            judge(session, HEADER, &request, 31, |reply| {
                reply.answer.status == 400 && reply.error_code() == Some(HEADER_MISMATCH)
            })
            .await;
        }
    }
}
