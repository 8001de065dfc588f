//! The tenant API: a handler is one use-case of the engine with its wire types beside it.

pub(super) mod agent_keys;
pub(super) mod approvals;
pub(super) mod audit;
pub(super) mod deliveries;
pub(super) mod endpoint_wire;
pub(super) mod endpoints;
pub(super) mod explain;
pub(super) mod groups;
pub(super) mod operations;
pub(super) mod org;
pub(super) mod runs;
pub(super) mod syncs;
pub(super) mod tools;
pub(super) mod workspace_keys;
