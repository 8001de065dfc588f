//! A call in rounds: a tool's server asks something, and the client calls again with its answers.
//!
//! Nothing of a round is kept here. What the server wants to have back goes out sealed and bound to the call, and comes
//! back with the answers; so does a person's yes, which counts once.

use super::caller::{McpCaller, Questions};
use super::dialogues::Abilities;
use crate::domain::canonical;
use crate::domain::run::Run;
use crate::domain::tool::ToolSpec;
use crate::engine::Engine;
use crate::engine::access::AgentAccess;
use crate::engine::catalog::CatalogTool;
use crate::engine::confirmation::{Binding, Round};
use crate::engine::dispatch::gate::GatePermit;
use crate::engine::run::{RunRefusal, RunRequest, ValidArguments};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// An MCP client's part in a call that is about to be sent.
#[derive(Debug)]
pub(in crate::engine) struct McpPart {
    pub(in crate::engine) caller: Box<McpCaller>,
    /// What the tool's server gave with its questions.
    pub(in crate::engine) server_state: Option<String>,
    /// The call's place at its endpoint, until somebody is asked.
    slot: Mutex<Option<GatePermit>>,
}

impl McpPart {
    /// The part of a client, and what it carried from the round before.
    pub(in crate::engine) fn of(caller: Box<McpCaller>, round: Option<Round>) -> Self {
        Self { caller, server_state: round.and_then(|round| round.state), slot: Mutex::new(None) }
    }

    /// Keeps the call's place at its endpoint.
    pub(in crate::engine) fn keep(&self, permit: Option<GatePermit>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// The place, if it was not given back.
    pub(in crate::engine) fn take_place(&self) -> Option<GatePermit> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a server's question of this method may be put to the client while the call goes on.
    pub(super) fn may_be_asked(&self, method: &str) -> bool {
        self.caller.questions == Questions::Ask && Abilities::among(&self.caller.capabilities).allow(method)
    }
}

/// What a confirmation, or the state of a round, is for.
pub(in crate::engine) fn binding<'a>(
    access: &AgentAccess,
    spec: &'a ToolSpec,
    caller: Option<&'a str>,
    arguments_hash: &'a str,
) -> Binding<'a> {
    Binding {
        org: access.key().org_id,
        agent_key: access.key().id,
        caller,
        tool: &spec.name,
        tool_hash: &spec.hash,
        arguments_hash,
    }
}

impl Engine {
    /// What the client carried from the round before; anything but what it was given for exactly this call is refused.
    pub(in crate::engine) fn round(
        &self,
        access: &AgentAccess,
        tool: &CatalogTool,
        arguments: &ValidArguments,
        request: &RunRequest,
    ) -> Result<Option<Round>, RunRefusal> {
        let Some(state) = request.mcp.as_deref().and_then(|mcp| mcp.request_state.as_deref()) else { return Ok(None) };
        let arguments_hash = canonical::sha256_hex(&arguments.value);
        let binding = binding(access, &tool.spec, request.caller.as_deref(), &arguments_hash);
        let round = self.0.seal.open_round(state, binding, self.clock().now());
        round.map(Some).ok_or(RunRefusal::StateMismatch)
    }

    /// Seals what the tool's server wants to have back with the answers to its questions. A yes that the run was given
    /// goes along. `None` when there is nothing to carry.
    ///
    /// However often a run is told of, its state is the same text: a yes is good for one next round, whoever was told of
    /// it again, and a key for a round stands for that round.
    pub fn seal_state(&self, access: &AgentAccess, run: &Run, server_state: Option<&str>) -> Option<String> {
        let intent = &run.intent;
        if server_state.is_none() && !intent.confirmed {
            return None;
        }
        let arguments: Value = serde_json::from_str(intent.arguments().as_str()).ok()?;
        let arguments_hash = canonical::sha256_hex(&arguments);
        // Of the run as it was made: what is another tool by now is another call.
        let binding = Binding {
            org: intent.org_id,
            agent_key: intent.agent_key,
            caller: intent.caller.as_deref(),
            tool: &intent.tool,
            tool_hash: &intent.tool_hash,
            arguments_hash: &arguments_hash,
        };
        let nonce = intent.id.uuid().into_bytes();
        let lasts = Duration::from_millis(access.catalog().limits.confirmation_ttl_ms);
        let expires_at = run.finished_at.unwrap_or(run.updated_at).plus(lasts);
        Some(self.0.seal.issue_round(binding, nonce, expires_at, intent.confirmed, server_state))
    }
}
