//! The words and numbers of the protocol that both sides of toolgate use.

/// The revision of the present, stateless era that is spoken.
pub const MODERN_VERSION: &str = "2026-07-28";

/// Revisions that open with `initialize`, newest first.
pub const LEGACY_VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Requests and results name their revision, their sender and what it can do under these members of `_meta`.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client's name and version.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the client can do.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The server's name and version.
pub const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The `subscriptions/listen` request that a notification belongs to.
pub const META_SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The Tasks extension, a member of `extensions` among the capabilities.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The body is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The body is no JSON-RPC request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong, or name nothing that is there.
pub const INVALID_PARAMS: i64 = -32602;
/// The gateway failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// A server's own error, without a code of its own.
pub const SERVER_ERROR: i64 = -32000;
/// No such resource, in the revisions that open with `initialize`.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Headers and body say different things.
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that its client did not declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The revision is not spoken.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Whether a revision belongs to the era of `initialize`.
pub fn is_legacy(version: &str) -> bool {
    version < MODERN_VERSION
}
