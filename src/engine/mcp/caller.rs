//! The agent's side of a call that comes over MCP: what its client can do, and how it is reached meanwhile.

use crate::domain::json::JsonText;
use crate::engine::confirmation::ROUND_MARK;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;

/// How an agent's MCP client takes part in a call.
#[derive(Clone, Debug)]
pub struct McpCaller {
    /// What the client declared that it can do, a JSON object: told to the tool's server as it is.
    pub capabilities: JsonText,
    /// The client sent `arguments`: where it sent none, none are sent on.
    pub arguments_given: bool,
    /// What becomes of a server's questions.
    pub questions: Questions,
    /// The client's answers to the questions of the round before, a JSON object.
    pub input_responses: Option<JsonText>,
    /// What the client was given with those questions: [`Engine::seal_state`](crate::engine::Engine::seal_state).
    pub request_state: Option<String>,
    /// The client's own session, where it has one: a server that may ask it is spoken with in a session for it alone.
    pub session: Option<[u8; 16]>,
    /// The client wants to hear of progress.
    pub wants_progress: bool,
    /// The way to the client while the call goes on.
    pub channel: Arc<dyn McpChannel>,
}

/// Whether what a client carried from a round before is the state of a call in rounds; any other is a confirmation token.
pub fn is_round_state(text: &str) -> bool {
    text.starts_with(ROUND_MARK)
}

/// What becomes of the questions that a tool's server has for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Questions {
    /// They end the run: the client asks again, with its answers.
    HandOn,
    /// They are put to the client while the call goes on.
    Ask,
    /// The client cannot be asked.
    None,
}

/// The way to an agent's MCP client while its call goes on.
#[async_trait]
pub trait McpChannel: Send + Sync {
    /// Hands on a server's progress: the parameters of its notification, a JSON object.
    fn progress(&self, params: &JsonText);

    /// Puts a question to the client (`elicitation/create` and its like) and waits for the answer: a result, or an error,
    /// each a JSON object. `None` when nobody is there to answer.
    async fn ask(&self, method: &str, params: &JsonText) -> Option<Result<JsonText, JsonText>>;

    /// Returns when the client takes its call back.
    async fn cancelled(&self);

    /// Whether the client wants nothing sent any more that was not sent yet: it took its call back, or has left.
    fn is_withdrawn(&self) -> bool;
}

impl fmt::Debug for dyn McpChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpChannel")
    }
}
