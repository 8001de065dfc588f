//! A call in rounds: a tool's server asks something, and the client calls again with its answers.
//!
//! Nothing of a round is kept here. What the server wants to have back goes out sealed and bound to the call, and comes
//! back with the answers; so does a person's yes, which counts once.

use super::caller::McpCaller;
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
    pub fn seal_state(&self, access: &AgentAccess, run: &Run, server_state: Option<&str>) -> Option<String> {
        let catalog = access.catalog();
        let tool = catalog.tool(&run.intent.tool)?;
        if server_state.is_none() && !tool.requires_confirmation {
            return None;
        }
        let arguments: Value = serde_json::from_str(run.intent.arguments().as_str()).ok()?;
        let arguments_hash = canonical::sha256_hex(&arguments);
        let binding = binding(access, &tool.spec, run.intent.caller.as_deref(), &arguments_hash);
        let mut nonce = [0; 16];
        self.clock().fill_random(&mut nonce);
        let expires_at = self.clock().now().plus(Duration::from_millis(catalog.limits.confirmation_ttl_ms));
        Some(self.0.seal.issue_round(binding, nonce, expires_at, tool.requires_confirmation, server_state))
    }
}
