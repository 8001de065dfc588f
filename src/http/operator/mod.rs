//! The operator API.

pub(super) mod orgs;
pub(super) mod status;
pub(super) mod usage;
