//! Runs: one tool call, from its admission to its final word.

use super::error_code::ErrorCode;
use super::ids::{EndpointId, KeyId, OperationId, OrgId, RunId};
use super::json::JsonText;
use super::time::Timestamp;
use super::tool::{Dialect, ToolKind};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// A command was handed to its provider; nothing more is expected.
    Started,
    /// Under way; the payload arrives later.
    Pending,
    /// Done, with a result.
    Completed,
    /// Done, with an error.
    Failed,
    /// Held for a reviewer or teammate; nothing was sent.
    AwaitingApproval,
    /// Refused by a person or by time; nothing was sent.
    Denied,
    /// No result came within the pending lifetime.
    Expired,
    /// Not wanted any more.
    Cancelled,
    /// Something was sent and the outcome is not known; its receipt is being looked for.
    Inspecting,
    /// Something was sent and the outcome is not known.
    Uncertain,
}

impl RunStatus {
    /// Every status; of two with one word the final one comes first.
    pub const ALL: [RunStatus; 10] = [
        RunStatus::Started,
        RunStatus::Pending,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::AwaitingApproval,
        RunStatus::Denied,
        RunStatus::Expired,
        RunStatus::Cancelled,
        RunStatus::Uncertain,
        RunStatus::Inspecting,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            RunStatus::Started => "started",
            RunStatus::Pending => "pending",
            RunStatus::Completed => "completed",
            RunStatus::Failed => "failed",
            RunStatus::AwaitingApproval => "awaiting_approval",
            RunStatus::Denied => "denied",
            RunStatus::Expired => "expired",
            RunStatus::Cancelled => "cancelled",
            RunStatus::Inspecting | RunStatus::Uncertain => "uncertain",
        }
    }

    /// The status with this word; `uncertain` is the final one.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether the run can still change.
    pub const fn is_open(self) -> bool {
        matches!(self, RunStatus::Pending | RunStatus::AwaitingApproval | RunStatus::Inspecting)
    }
}

/// Why a run failed, as its agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Found by toolgate.
    Gateway {
        /// The code of section 12 of the contract.
        code: ErrorCode,
        /// What happened, without hosts or secrets.
        message: String,
    },
    /// Said by the provider and handed on as it is: a JSON object.
    Provider(JsonText),
}

/// What a run is or has become.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// The status.
    pub status: RunStatus,
    /// Anything was sent, and the provider did not say that nothing was started.
    pub started: bool,
    /// The result as the provider wrote it.
    pub result: Option<JsonText>,
    /// The failure.
    pub error: Option<RunError>,
    /// Why a run was denied, expired or cancelled.
    pub reason: Option<String>,
}

impl RunOutcome {
    /// An outcome without result, error or reason.
    pub const fn bare(status: RunStatus, started: bool) -> Self {
        Self { status, started, result: None, error: None, reason: None }
    }

    /// A finished run with its result.
    pub const fn completed(result: JsonText) -> Self {
        Self { status: RunStatus::Completed, started: true, result: Some(result), error: None, reason: None }
    }

    /// A run that toolgate found to have failed.
    pub fn failed(started: bool, code: ErrorCode, message: impl Into<String>) -> Self {
        let error = RunError::Gateway { code, message: message.into() };
        Self { status: RunStatus::Failed, started, result: None, error: Some(error), reason: None }
    }

    /// A run that ended without the provider's word.
    pub fn ended(status: RunStatus, started: bool, reason: impl Into<String>) -> Self {
        Self { status, started, result: None, error: None, reason: Some(reason.into()) }
    }
}

/// One exchange with the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it began.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// A word such as `answered`, `connect_refused`, `timeout`.
    pub outcome: String,
    /// The provider's HTTP status, when there was an answer.
    pub http_status: Option<u16>,
}

/// Where a call comes from, as the agent says: the `context` of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallContext {
    /// `conversation`, or `Conversation-Id`.
    pub conversation: Option<String>,
    /// `turn`.
    pub turn: Option<String>,
    /// `locale`.
    pub locale: Option<String>,
    /// `timezone`.
    pub timezone: Option<String>,
}

/// What is fixed about a run when it is admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct RunIntent {
    /// The `correlation_id`.
    pub id: RunId,
    /// Its organization.
    pub org_id: OrgId,
    /// The agent key that made it: the only one that may see it.
    pub agent_key: KeyId,
    /// The endpoint that runs it.
    pub endpoint_id: EndpointId,
    /// The endpoint's name at that time.
    pub endpoint_name: String,
    /// The endpoint's dialect.
    pub dialect: Dialect,
    /// Catalog name of the tool.
    pub tool: String,
    /// Query or command.
    pub kind: ToolKind,
    /// The tool lets the agent reword the result.
    pub llm_format: bool,
    /// Hash of the tool's declaration that the arguments were validated against.
    pub tool_hash: String,
    /// The caller's own request id.
    pub request_id: Option<String>,
    /// `X-Caller-Identity`.
    pub caller: Option<String>,
    /// It was asked for with an `Idempotency-Key`: no retry of it makes another run.
    pub keyed: bool,
    /// The end user said yes to it, by a confirmation that was good and was used up by it.
    pub confirmed: bool,
    /// Where the call comes from.
    pub context: CallContext,
    /// The arguments as the agent sent them.
    pub arguments_sent: JsonText,
    /// The arguments after coercion; `None` when coercion changed nothing.
    pub arguments_coerced: Option<JsonText>,
    /// When it was admitted.
    pub created_at: Timestamp,
    /// When it expires if it is still open.
    pub expires_at: Option<Timestamp>,
}

impl RunIntent {
    /// The arguments that are sent to the provider.
    pub fn arguments(&self) -> &JsonText {
        self.arguments_coerced.as_ref().unwrap_or(&self.arguments_sent)
    }
}

impl Run {
    /// The run without what only its record needs: an open run is held for as long as its result takes, its arguments
    /// are not.
    pub fn slim(&self) -> Self {
        let nothing = JsonText::of(&serde_json::Value::Null);
        let intent = RunIntent { arguments_sent: nothing, arguments_coerced: None, ..self.intent.clone() };
        Self { intent, ..self.clone() }
    }

    /// What an open run becomes when its endpoint or its organization is deleted: a call that may have been carried out
    /// is uncertain, anything else is cancelled. The store says the same in its own language.
    pub const fn status_once_deleted(&self) -> RunStatus {
        let waits_for_callback = match (self.intent.dialect, self.intent.kind) {
            (Dialect::Topology, ToolKind::Query) => true,
            (Dialect::Topology, ToolKind::Command) | (Dialect::AgentProvider | Dialect::Median | Dialect::Mcp, _) => {
                false
            }
        };
        match self.outcome.status {
            RunStatus::Inspecting | RunStatus::Uncertain => RunStatus::Uncertain,
            RunStatus::Pending if self.outcome.started && !waits_for_callback => RunStatus::Uncertain,
            RunStatus::Pending
            | RunStatus::Started
            | RunStatus::Completed
            | RunStatus::Failed
            | RunStatus::AwaitingApproval
            | RunStatus::Denied
            | RunStatus::Expired
            | RunStatus::Cancelled => RunStatus::Cancelled,
        }
    }
}

/// A run with everything that happened to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What is fixed.
    pub intent: RunIntent,
    /// Where it stands.
    pub outcome: RunOutcome,
    /// The provider's own correlation id.
    pub provider_correlation_id: Option<String>,
    /// A result that failed the output schema: for the tenant's eyes only.
    pub withheld_result: Option<JsonText>,
    /// Its operation, when the provider keeps receipts.
    pub operation_id: Option<OperationId>,
    /// The exchanges with the provider.
    pub attempts: Vec<Attempt>,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it became final.
    pub finished_at: Option<Timestamp>,
}
