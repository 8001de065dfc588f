//! The call a developer asks to see: its tool, whether its arguments fit, and what goes around it.

use super::manifest::Offered;
use super::report::{Report, Rule};
use super::session::now;
use super::{CheckOptions, SampleCall};
use crate::dialects::{ApprovalMark, Call, agent_provider};
use crate::domain::fingerprint::{self, Fingerprinted};
use crate::domain::ids::RunId;
use crate::domain::operation::OperationMark;
use crate::domain::risk::Risk;
use crate::domain::schema::CompiledSchema;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Dialect, ToolKind, ToolSpec};
use serde_json::Value;
use uuid::Uuid;

/// The organization that calls come from.
pub(super) const WORKSPACE: &str = "toolgate-check";

const TOOL: Rule = Rule::new("§2.4", "call: the tool", "the tool of --tool in the manifest");
const ARGUMENTS: Rule = Rule::new("§2.4", "call: the arguments", "arguments that fit the tool's schema");

/// Picks the tool to call and checks the arguments against its schema, as the gateway does before it sends anything.
/// `None` when there is nothing to call; the lines say why.
pub(super) fn pick<'a>(
    report: &mut Report<'_>,
    options: &'a CheckOptions,
    offered: &'a Offered,
) -> Option<(&'a ToolSpec, &'a SampleCall)> {
    let Some(call) = &options.call else {
        report.skip_all(&[TOOL, ARGUMENTS], "no tool is to be called: give --tool NAME and --args JSON");
        return None;
    };
    if !offered.is_taken {
        report.skip_all(&[TOOL, ARGUMENTS], "the manifest is not taken");
        return None;
    }
    let tools = &offered.tools;
    let Some(tool) = tools.iter().find(|tool| tool.provider_name == call.tool) else {
        let names: Vec<&str> = tools.iter().map(|tool| tool.provider_name.as_str()).collect();
        report.fail(TOOL, format!("only {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") }));
        report.skip(ARGUMENTS, "there is no such tool");
        return None;
    };
    report.ok(TOOL, tool.provider_name.clone());
    let arguments: Value = serde_json::from_str(call.arguments.as_str()).unwrap_or_default();
    let fits = match CompiledSchema::compile_text(&tool.input_schema, options.dialect.default_draft()) {
        Ok(schema) => schema.validate(&arguments).map_err(|errors| {
            let told = errors.iter().map(|error| format!("{}: {}", error.pointer, error.message));
            told.collect::<Vec<_>>().join(" | ")
        }),
        Err(fault) => Err(fault.to_string()),
    };
    match fits {
        Ok(()) if arguments.is_object() => report.ok(ARGUMENTS, "such"),
        Ok(()) => {
            report.fail(ARGUMENTS, "something else than an object");
            return None;
        }
        Err(sentence) => {
            report.fail(ARGUMENTS, sentence);
            return None;
        }
    }
    Some((tool, call))
}

/// Whether calling a tool may change something, by all the dialect tells of it.
pub(super) fn may_change(dialect: Dialect, tool: &ToolSpec) -> bool {
    match dialect {
        Dialect::Topology => tool.kind == ToolKind::Command,
        Dialect::Mcp => !tool.is_plain_read(true),
        Dialect::AgentProvider => tool.mutating,
        // The source calls low what may run without anybody being asked.
        Dialect::Median => tool.risk != Some(Risk::Low),
    }
}

/// What goes around the arguments of a call.
pub(super) struct CallFrame {
    pub(super) run_id: RunId,
    pub(super) callback_url: String,
    pub(super) approval: ApprovalMark,
    pub(super) operation: Option<OperationMark>,
    pub(super) now: Timestamp,
    pub(super) trace_id: String,
}

impl CallFrame {
    /// A frame with new ids.
    pub(super) fn new() -> Self {
        Self {
            run_id: RunId::from_uuid(Uuid::now_v7()),
            callback_url: String::new(),
            approval: ApprovalMark::None,
            operation: None,
            now: now(),
            trace_id: Uuid::now_v7().simple().to_string(),
        }
    }

    /// The call as the gateway makes it.
    pub(super) fn call<'a>(&'a self, tool: &'a ToolSpec, sample: &'a SampleCall) -> Call<'a> {
        Call {
            run_id: self.run_id,
            tool,
            arguments: &sample.arguments,
            caller: sample.caller.as_deref(),
            conversation: None,
            callback_url: &self.callback_url,
            approval: &self.approval,
            workspace: WORKSPACE,
            turn: None,
            locale: None,
            timezone: None,
            now: self.now,
            trace_id: &self.trace_id,
            operation: self.operation.as_ref(),
        }
    }
}

/// The fingerprint of a call under a contract version.
pub(super) fn fingerprint(tool: &ToolSpec, sample: &SampleCall, contract_version: &str) -> String {
    let arguments: Value = serde_json::from_str(sample.arguments.as_str()).unwrap_or_default();
    fingerprint::fingerprint(Fingerprinted {
        arguments: &arguments,
        contract_version,
        subject: agent_provider::subject_id(sample.caller.as_deref()),
        tool: &tool.provider_name,
        workspace: WORKSPACE,
    })
}
