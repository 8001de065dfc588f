//! Tools: what an endpoint declares, and what the tenant's policy makes of it.

use super::change::Change;
use super::evidence::EvidenceKinds;
use super::json::JsonText;
use super::risk::Risk;
use super::schema::DefaultDraft;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The protocol an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Orchesty Pulse: manifest, run, and callbacks of the response node.
    Topology,
    /// A provider adapter: reads and mutations answered with evidence, mutations with a receipt.
    AgentProvider,
    /// Median: signed tool calls, answered in the same exchange.
    Median,
    /// An MCP server over Streamable HTTP, of the present era or an earlier one.
    Mcp,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 4] = [Dialect::Topology, Dialect::AgentProvider, Dialect::Median, Dialect::Mcp];

    /// The word of a registration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Dialect::Topology => "topology",
            Dialect::AgentProvider => "agent-provider",
            Dialect::Median => "median",
            Dialect::Mcp => "mcp",
        }
    }

    /// The dialect with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.as_str() == word)
    }

    /// What stands before the `:` of a canonical tool id.
    pub const fn id_prefix(self) -> &'static str {
        match self {
            Dialect::Topology => "topology",
            Dialect::AgentProvider => "provider",
            Dialect::Median => "median",
            Dialect::Mcp => "mcp",
        }
    }

    /// The draft of a schema that does not name one.
    pub const fn default_draft(self) -> DefaultDraft {
        match self {
            Dialect::Topology => DefaultDraft::Draft7,
            Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => DefaultDraft::Draft202012,
        }
    }

    /// Whether the endpoint is synced when a new conversation begins.
    pub const fn syncs_on_conversation(self) -> bool {
        match self {
            Dialect::Topology | Dialect::AgentProvider | Dialect::Mcp => false,
            Dialect::Median => true,
        }
    }
}

/// Whether a tool asks or acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolKind {
    /// Answers something.
    Query,
    /// Does something; fire and forget for a topology.
    Command,
}

impl ToolKind {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ToolKind::Query => "query",
            ToolKind::Command => "command",
        }
    }

    /// The kind with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [ToolKind::Query, ToolKind::Command].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One tool as its endpoint declares it, checked by the endpoint's dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name in the organization's catalog: the endpoint's prefix and the provider's own name.
    pub name: String,
    /// The provider's own name, the only one ever sent to it.
    pub provider_name: String,
    /// A short human title.
    pub title: Option<String>,
    /// What the tool does, for a model.
    pub description: Option<String>,
    /// Query or command.
    pub kind: ToolKind,
    /// JSON Schema of the arguments, checked; parsed where it is compiled.
    pub input_schema: JsonText,
    /// JSON Schema of the result, likewise.
    pub output_schema: Option<JsonText>,
    /// The declared risk, where the dialect has one.
    pub risk: Option<Risk>,
    /// The end user has to confirm each call.
    pub requires_confirmation: bool,
    /// The agent may reword the result.
    pub llm_format: bool,
    /// Declared to change something, where the dialect says so.
    pub mutating: bool,
    /// The provider's own time limit.
    pub timeout: Option<Duration>,
    /// What an agent-provider's manifest binds the tool to; `None` for every other dialect.
    pub provider: Option<Arc<ProviderTerms>>,
    /// What an MCP server declares beside; `None` for every other dialect.
    pub mcp: Option<Arc<McpTool>>,
    /// SHA-256 (64 lower-case hex digits) of the canonical JSON of everything the provider declared for this tool.
    pub hash: String,
}

impl ToolSpec {
    /// The canonical id, such as `topology:weather-report`.
    pub fn canonical_id(&self, dialect: Dialect) -> String {
        [dialect.id_prefix(), ":", &self.name].concat()
    }

    /// Whether a call only reads, on the word of a provider that tells reads and mutations apart. An MCP server's word
    /// for it counts only where the tenant trusts the server.
    pub fn is_plain_read(&self, trusted: bool) -> bool {
        match (&self.provider, &self.mcp) {
            (Some(_), _) => !self.mutating,
            (None, Some(mcp)) => trusted && mcp.read_only,
            (None, None) => false,
        }
    }
}

/// What an MCP server declares for one of its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpTool {
    /// The declaration as it came, a JSON object: it is handed on with every member it has.
    pub declared: JsonText,
    /// `annotations.readOnlyHint`.
    pub read_only: bool,
    /// Arguments that are repeated in headers of the call.
    pub header_params: Vec<HeaderParam>,
}

/// An argument that an MCP call repeats in a header: `x-mcp-header` of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParam {
    /// Member names from the arguments' root to the value.
    pub path: Vec<String>,
    /// What follows `Mcp-Param-` in the header's name.
    pub name: String,
}

/// What an agent-provider's manifest binds one of its tools to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderTerms {
    /// The manifest's `contract_version`, a calendar date.
    pub contract_version: String,
    /// The manifest's `languages`, as declared; at least one.
    pub languages: Vec<String>,
    /// The kinds of evidence an answer may hold, and a good one has to.
    pub produces_evidence: EvidenceKinds,
    /// The name of a mutation's action; `None` for a read.
    pub action: Option<String>,
    /// How long receipts are kept.
    pub receipt_retention: Option<Duration>,
}

/// A checked tool together with the item it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredTool {
    /// What toolgate understood.
    pub spec: ToolSpec,
    /// The provider's item, whole: a diff compares every member.
    pub declared: Value,
}

/// What a tenant sets on one tool, keyed by its catalog name. It may only make a call stricter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    /// Raises the risk.
    pub risk: Option<Risk>,
    /// Demands the end user's confirmation.
    pub requires_confirmation: Option<bool>,
    /// Replaces the run deadline (at most 60 s).
    pub timeout: Option<Duration>,
    /// Replaces the lifetime of a pending run (at most 24 h).
    pub pending_ttl: Option<Duration>,
    /// The tool hash a workspace key accepted, where the endpoint's changes are reviewed.
    pub accepted_hash: Option<String>,
}

/// What is changed of a [`ToolPolicy`]; whatever it does not name stays as it is when the change is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// The raised risk.
    pub risk: Change<Risk>,
    /// The demanded confirmation.
    pub requires_confirmation: Change<bool>,
    /// The run deadline.
    pub timeout: Change<Duration>,
    /// The lifetime of a pending run.
    pub pending_ttl: Change<Duration>,
    /// The accepted hash: replaced, never taken back.
    pub accepted_hash: Option<String>,
}

impl PolicyChange {
    /// A change that accepts a hash and nothing else.
    pub fn accepting(hash: impl Into<String>) -> Self {
        Self { accepted_hash: Some(hash.into()), ..Self::default() }
    }

    /// Applies the change to a policy.
    pub fn apply(&self, policy: &mut ToolPolicy) {
        self.risk.apply(&mut policy.risk);
        self.requires_confirmation.apply(&mut policy.requires_confirmation);
        self.timeout.apply(&mut policy.timeout);
        self.pending_ttl.apply(&mut policy.pending_ttl);
        if let Some(hash) = &self.accepted_hash {
            policy.accepted_hash = Some(hash.clone());
        }
    }
}
