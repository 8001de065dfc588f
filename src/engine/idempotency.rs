//! A caller's `Idempotency-Key`: one key, one run of its agent key, whatever breaks.
//!
//! **Invariant:** a key is reserved in the very step that stores its run, so there is no reservation without its run and
//! no lock that could expire while the work goes on. **Invariant:** the key is compared by what was sent, not by what a
//! newer manifest makes of it: an honest retry finds its run.

use super::Engine;
use super::access::AgentAccess;
use super::catalog::CatalogTool;
use super::run::{Checked, RunRefusal, RunReply, RunRequest, patience};
use super::store_port::{Reservation, Reserved};
use crate::domain::canonical;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::Instant;

/// A key is kept at least this long.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

impl Engine {
    /// The run that the request's key stands for already; `None` when it is free.
    pub(super) async fn replay(
        &self,
        access: &AgentAccess,
        tool: &CatalogTool,
        request: &RunRequest,
        begun: Instant,
    ) -> Result<Option<RunReply>, RunRefusal> {
        let Some(key) = &request.idempotency_key else { return Ok(None) };
        let (org, agent_key) = (access.key().org_id, access.key().id);
        let Some(reserved) = self.store().reserved(org, agent_key, key, self.clock().now()).await? else {
            return Ok(None);
        };
        let run_id = same_call(&reserved, content_hash(tool, request))?;
        let run = self.store().run(org, run_id).await?.ok_or(RunRefusal::KeyConflict)?;
        let run = self.await_known(run.into(), patience(tool, request, begun)).await?;
        Ok(Some(RunReply::Replay(run)))
    }

    /// What the run of a checked call reserves.
    pub(super) fn reservation(&self, checked: &Checked<'_>) -> Option<Reservation> {
        let key = checked.request.idempotency_key.clone()?;
        let receipts = checked.tool.spec.provider.as_ref().and_then(|terms| terms.receipt_retention);
        Some(Reservation {
            key,
            content_hash: content_hash(checked.tool, checked.request),
            expires_at: self.clock().now().plus(receipts.unwrap_or_default().max(KEPT_FOR)),
        })
    }
}

/// The run a key is reserved for, if it is that of the same call.
pub(super) fn same_call(reserved: &Reserved, content_hash: [u8; 32]) -> Result<crate::domain::ids::RunId, RunRefusal> {
    if reserved.content_hash == content_hash { Ok(reserved.run_id) } else { Err(RunRefusal::KeyConflict) }
}

/// SHA-256 of the canonical `{tool, args as sent, caller}`; a tool's two spellings are one.
pub(super) fn content_hash(tool: &CatalogTool, request: &RunRequest) -> [u8; 32] {
    // The edge has found the arguments to be JSON.
    let args: Value = serde_json::from_str(request.arguments.as_str()).unwrap_or_default();
    let content = json!({ "tool": tool.spec.name, "args": args, "caller": request.caller });
    Sha256::digest(canonical::to_canonical(&content).as_bytes()).into()
}
