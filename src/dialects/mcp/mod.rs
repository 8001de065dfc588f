//! The Model Context Protocol over Streamable HTTP.

pub mod sse;
