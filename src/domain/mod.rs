//! The pure core: no async, no I/O, no clock, no HTTP. Everything here is a value or a function of values.

pub mod canonical;
pub mod change;
pub mod coerce;
pub mod egress;
pub mod endpoint;
pub mod error_code;
pub mod group;
pub mod ids;
pub mod json;
pub(crate) mod json_pointer;
pub mod json_scan;
pub mod key;
pub mod manifest;
pub mod naming;
pub mod org;
pub mod risk;
pub mod run;
pub mod schema;
pub mod secret;
pub mod time;
pub mod tool;
pub mod trace;
