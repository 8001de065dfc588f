//! The agent API: the manifest, running a tool, and looking after a run.

pub(in crate::http) mod headers;
pub(super) mod manifest;
pub(super) mod run;
pub(super) mod runs;
pub(super) mod wire;
