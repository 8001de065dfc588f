//! MCP, on both sides: what an agent's MCP client brings to a call, and the dialogue with MCP servers.

pub mod caller;
pub(in crate::engine) mod round;
pub mod session;
