//! The only place that knows actix: one actor an organization, behind a handle.

mod arbiters;
mod org_actor;
pub mod org_handle;
pub mod registry;

#[cfg(test)]
mod tests;
