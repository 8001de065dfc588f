//! MCP, on both sides: what an agent's MCP client brings to a call, and the dialogue with MCP servers.
//!
//! | module | what it does |
//! |---|---|
//! | [`caller`] | the agent's client: what it can do, and how it is reached during a call |
//! | `round` | a call in rounds: what is carried from one to the next |
//! | [`session`] | what a client of the earlier era said once, sealed |
//! | `dialogues` | dialogues with servers of the earlier era: opened once, shared, opened anew |
//! | `held` | a dialogue that is held, and given back when nobody holds it |
//! | `deadline` | when a call has to be over; people's time does not count |
//! | `exchange` | one request to a server, and all that comes before its response |
//! | `asked` | what a server asks meanwhile, answered beside the call |
//! | `side_stream` | the stream beside a call, on which its client may be asked too |
//! | `call` | a tool call, round by round, to its outcome |
//! | `reading` | what a response makes of a call |
//! | `changes` | a server's word that its tools have changed |
//! | `listener` | streams on which servers announce changes |
//! | `list` | all pages of a server's tools |

mod asked;
pub(in crate::engine) mod call;
pub mod caller;
pub(in crate::engine) mod changes;
mod deadline;
pub(in crate::engine) mod dialogues;
mod exchange;
mod held;
pub(in crate::engine) mod list;
pub(in crate::engine) mod listener;
mod reading;
pub(in crate::engine) mod round;
pub mod session;
mod side_stream;

use crate::domain::egress::EgressPolicy;
use crate::domain::endpoint::Endpoint;
use crate::engine::Engine;

/// An MCP server as an organization has it registered.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Server<'a> {
    pub(in crate::engine) engine: &'a Engine,
    /// The organization's slug.
    pub(in crate::engine) org: &'a str,
    pub(in crate::engine) egress: &'a EgressPolicy,
    pub(in crate::engine) endpoint: &'a Endpoint,
    /// The longest answer that is read, in bytes.
    pub(in crate::engine) max_answer_bytes: usize,
}
