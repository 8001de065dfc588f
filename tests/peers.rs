//! toolgate between official MCP software: the conformance suite, the SDKs' clients and their servers. What they are and
//! how they are brought is told by `peers/install`; what any one test needs of that, it installs itself.

#[path = "peers/clients.rs"]
mod clients;
#[path = "peers/conformance.rs"]
mod conformance;
#[path = "peers/differential.rs"]
mod differential;
#[path = "peers/harness.rs"]
mod harness;
#[path = "peers/json.rs"]
mod json;
#[path = "peers/load.rs"]
mod load;
#[path = "peers/mcp.rs"]
mod mcp;
#[path = "peers/rmcp_client.rs"]
mod rmcp_client;
#[path = "peers/sse.rs"]
mod sse;
