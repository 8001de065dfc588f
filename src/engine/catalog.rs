//! The catalog: an immutable snapshot of what an organization offers, and who of its agents sees what.
//!
//! **Invariant:** listing and calling go through the same [`VisibleSet`], so what is listed is exactly what is callable.

use super::dispatch::gate::EndpointGate;
use super::settings::{EngineSettings, MAX_PENDING_TTL, MAX_RUN_TIMEOUT};
use super::store_port::OrgConfig;
use crate::domain::egress::EgressPolicy;
use crate::domain::endpoint::{Endpoint, EndpointSettings, SharedEndpoint, ToolChanges};
use crate::domain::group::{self, Group, Subject, Verdict};
use crate::domain::ids::{EndpointId, GroupId};
use crate::domain::naming;
use crate::domain::org::{ConfirmationFallback, Limits, Org, OrgState};
use crate::domain::risk::Risk;
use crate::domain::tool::{Dialect, ToolKind, ToolPolicy, ToolSpec};
use bytes::Bytes;
use dashmap::DashMap;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const NO_POLICY: ToolPolicy =
    ToolPolicy { risk: None, requires_confirmation: None, timeout: None, pending_ttl: None, accepted_hash: None };

/// An organization has few sets of groups: the map of them takes as few shards as it can, each some 128 bytes.
const VISIBLE_SHARDS: usize = 2;

/// Whether a tool can be listed and called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolState {
    /// It can.
    Active,
    /// Its declaration changed and nobody has accepted it yet.
    Quarantined,
    /// Its endpoint is switched off.
    Disabled,
}

impl ToolState {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ToolState::Active => "active",
            ToolState::Quarantined => "quarantined",
            ToolState::Disabled => "disabled",
        }
    }
}

/// One tool with everything a run of it needs.
#[derive(Debug)]
pub struct CatalogTool {
    /// What the endpoint declares.
    pub spec: ToolSpec,
    /// The canonical id.
    pub id: String,
    /// Its endpoint.
    pub endpoint: SharedEndpoint,
    /// In-flight cap and breaker of the endpoint.
    pub gate: Arc<EndpointGate>,
    /// What the tenant set, if anything.
    pub policy: Option<Box<ToolPolicy>>,
    /// Whether it can be used.
    pub state: ToolState,
    /// The declared risk, raised by the policy; `None` when neither says anything.
    pub risk: Option<Risk>,
    /// The end user has to confirm each call.
    pub requires_confirmation: bool,
    /// The run deadline.
    pub timeout: Duration,
    /// Lifetime of a pending run.
    pub pending_ttl: Duration,
}

impl CatalogTool {
    /// The risk that group rules compare: an undeclared one counts as `low` for a plain read, else as `medium`.
    pub fn counted_risk(&self) -> Risk {
        self.risk.unwrap_or(if self.is_plain_read() { Risk::Low } else { Risk::Medium })
    }

    /// The risk before the tenant's policy of this tool.
    pub fn declared_risk(&self) -> Option<Risk> {
        declared_risk(&self.spec, &self.endpoint.settings)
    }

    /// Whether a call only reads, on the word of a provider that is believed.
    pub fn is_plain_read(&self) -> bool {
        self.spec.is_plain_read(self.endpoint.settings.trusted)
    }

    /// Whether the provider answers in the exchange of the call itself.
    pub fn answers_at_once(&self) -> bool {
        match self.endpoint.settings.dialect {
            Dialect::Topology => false,
            Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => true,
        }
    }

    /// Whether a call may be recorded after the fact: a lost record then loses no effect, because an uncertain outcome
    /// of such a call counts as failed and is never sent again.
    pub fn is_recorded_later(&self) -> bool {
        match self.endpoint.settings.dialect {
            Dialect::Topology => false,
            Dialect::AgentProvider | Dialect::Mcp => {
                self.is_plain_read() && !self.requires_confirmation && !self.risk.is_some_and(Risk::needs_approval)
            }
            Dialect::Median => self.risk == Some(Risk::Low) && !self.requires_confirmation,
        }
    }

    /// Whether a client may be told that its call is not over yet.
    pub fn can_stay_open(&self, fallback: ConfirmationFallback) -> bool {
        let asks_a_teammate = match fallback {
            ConfirmationFallback::Refuse => false,
            ConfirmationFallback::Approval => self.requires_confirmation,
        };
        self.stays_pending() || asks_a_teammate || self.risk.is_some_and(Risk::needs_approval)
    }

    /// Whether a run stays pending after a good acknowledgement.
    pub fn stays_pending(&self) -> bool {
        match self.endpoint.settings.dialect {
            Dialect::Topology => self.spec.kind == ToolKind::Query,
            Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => false,
        }
    }

    fn name(&self) -> &str {
        &self.spec.name
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn subject(&self) -> Subject<'_> {
        Subject { tool: &self.spec.name, endpoint: &self.endpoint.settings.name, risk: self.counted_risk() }
    }
}

/// The tools one set of groups may use.
#[derive(Debug)]
pub struct VisibleSet {
    by_name: Box<[Arc<CatalogTool>]>,
    by_id: Box<[Arc<CatalogTool>]>,
    rendered: OnceLock<Rendered>,
    /// Names that protocols without dots show otherwise than they are, each with its place in `by_name`.
    by_shown_name: OnceLock<Box<[ShownName]>>,
    shown: [OnceLock<ShownTools>; 2],
}

/// A name as it is shown, and the place of its tool.
type ShownName = (Box<str>, usize);

/// Whom tools are shown to over MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownTo {
    /// Clients of the present era.
    Modern,
    /// Clients of the earlier one.
    Legacy,
}

/// Tools as MCP clients are shown them.
#[derive(Debug)]
pub struct ShownTools {
    /// The JSON of each, in order of id.
    pub items: Box<[Box<str>]>,
    /// SHA-256 of them all.
    pub hash: [u8; 32],
}

/// A manifest as it is sent, with its ETag.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The body.
    pub body: Bytes,
    /// The quoted entity tag.
    pub etag: String,
}

impl VisibleSet {
    /// The tool with this bare name or canonical id: looked up whole, never split.
    pub fn resolve(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        find(&self.by_name, CatalogTool::name, name).or_else(|| find(&self.by_id, CatalogTool::id, name))
    }

    /// The tools in order of id.
    pub fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.by_id
    }

    /// The tool with this bare name, or with this name as a protocol without dots shows it.
    pub fn resolve_shown(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        find(&self.by_name, CatalogTool::name, name).or_else(|| {
            let shown = self.by_shown_name.get_or_init(|| shown_names(&self.by_name));
            let at = shown.binary_search_by(|(shown, _)| (**shown).cmp(name)).ok()?;
            self.by_name.get(shown.get(at)?.1)
        })
    }

    /// The tools as one kind of MCP client is shown them, rendered by the first who asks.
    pub fn shown(&self, to: ShownTo, render: impl FnOnce(&[Arc<CatalogTool>]) -> ShownTools) -> &ShownTools {
        let at = match to {
            ShownTo::Modern => 0,
            ShownTo::Legacy => 1,
        };
        self.shown[at].get_or_init(|| render(&self.by_id))
    }

    /// The manifest, rendered by the first who asks.
    pub fn rendered(&self, render: impl FnOnce(&[Arc<CatalogTool>]) -> Rendered) -> &Rendered {
        self.rendered.get_or_init(|| render(&self.by_id))
    }
}

/// An immutable snapshot of an organization.
#[derive(Debug)]
pub struct Catalog {
    /// The organization.
    pub org: Org,
    /// Limits in force.
    pub limits: Limits,
    /// Addresses the organization may reach.
    pub egress: Arc<EgressPolicy>,
    /// Which state of the store this is.
    pub revision: u64,
    groups: HashMap<GroupId, Group>,
    endpoints: HashMap<EndpointId, (SharedEndpoint, usize)>,
    /// In order of name.
    tools: Box<[Arc<CatalogTool>]>,
    visible: DashMap<Vec<GroupId>, Arc<VisibleSet>>,
}

impl Catalog {
    /// Builds the snapshot of `config`. `gate_of` answers the gate an endpoint keeps from snapshot to snapshot.
    pub fn build(
        mut config: OrgConfig,
        settings: &EngineSettings,
        mut gate_of: impl FnMut(EndpointId, &Limits) -> Arc<EndpointGate>,
    ) -> Self {
        let limits = limits_in_force(&config.org, settings);
        let egress = Arc::new(egress_policy(&config.org, settings));
        let mut endpoints = HashMap::new();
        let mut tools = Vec::new();
        for (endpoint, specs) in config.endpoints {
            let gate = gate_of(endpoint.id, &limits);
            let endpoint = Arc::new(endpoint);
            endpoints.insert(endpoint.id, (Arc::clone(&endpoint), specs.len()));
            for spec in specs {
                let policy = config.policies.remove(&spec.name);
                tools.push(Arc::new(catalog_tool(spec, &endpoint, &gate, policy, &limits, settings)));
            }
        }
        // No name is there twice: the store refuses it.
        tools.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let groups = config.groups.into_iter().map(|group| (group.id, group)).collect();
        let (org, revision) = (config.org, config.revision);
        let (tools, visible) = (tools.into(), DashMap::with_shard_amount(VISIBLE_SHARDS));
        Self { org, limits, egress, revision, groups, endpoints, tools, visible }
    }

    /// The tools that a key of these groups may list and call.
    pub fn visible(&self, groups: &[GroupId]) -> Arc<VisibleSet> {
        if let Some(set) = self.visible.get(groups) {
            return Arc::clone(&set);
        }
        let set = Arc::new(self.visible_set(groups));
        self.visible.insert(groups.to_vec(), Arc::clone(&set));
        set
    }

    fn visible_set(&self, groups: &[GroupId]) -> VisibleSet {
        // As the catalog has them: in order of name.
        let by_name: Box<[Arc<CatalogTool>]> = self
            .tools
            .iter()
            .filter(|tool| tool.state == ToolState::Active && self.org.state == OrgState::Active)
            .filter(|tool| matches!(self.verdict(groups, tool), Verdict::Allowed { .. }))
            .cloned()
            .collect();
        let mut by_id = by_name.clone();
        by_id.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        VisibleSet {
            by_name,
            by_id,
            rendered: OnceLock::new(),
            by_shown_name: OnceLock::new(),
            shown: [OnceLock::new(), OnceLock::new()],
        }
    }

    /// What the groups of a key say of a tool, whatever the tool's state.
    pub fn verdict<'a>(&'a self, groups: &[GroupId], tool: &CatalogTool) -> Verdict<'a> {
        group::decide(groups.iter().filter_map(|id| self.groups.get(id)), tool.subject())
    }

    /// One endpoint.
    pub fn endpoint(&self, id: EndpointId) -> Option<&SharedEndpoint> {
        self.endpoints.get(&id).map(|(endpoint, _)| endpoint)
    }

    /// How many tools an endpoint has.
    pub fn tool_count(&self, id: EndpointId) -> usize {
        self.endpoints.get(&id).map_or(0, |(_, count)| *count)
    }

    /// Every endpoint.
    pub fn endpoints(&self) -> impl Iterator<Item = &SharedEndpoint> {
        self.endpoints.values().map(|(endpoint, _)| endpoint)
    }

    /// Every tool, in order of name, whatever its state.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.tools.iter()
    }

    /// The tool with this catalog name, whatever its state.
    pub fn tool(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        find(&self.tools, CatalogTool::name, name)
    }

    /// Whether the name of a group is known, and its id.
    pub fn group_id(&self, name: &str) -> Option<GroupId> {
        self.groups.values().find(|group| group.name == name).map(|group| group.id)
    }

    /// The name of a group.
    pub fn group_name(&self, id: GroupId) -> Option<&str> {
        self.groups.get(&id).map(|group| group.name.as_str())
    }
}

/// Two names of an organization never become one: those that differ only by a separator clash.
fn shown_names(by_name: &[Arc<CatalogTool>]) -> Box<[ShownName]> {
    let dotted = by_name.iter().enumerate().filter(|(_, tool)| tool.name().contains('.'));
    let mut shown: Vec<ShownName> = dotted.map(|(at, tool)| (naming::without_dots(tool.name()).into(), at)).collect();
    shown.sort_unstable();
    shown.into()
}

/// The tool with this text as its key, among tools in the order of that key.
fn find<'t>(
    tools: &'t [Arc<CatalogTool>],
    key: fn(&CatalogTool) -> &str,
    wanted: &str,
) -> Option<&'t Arc<CatalogTool>> {
    let at = tools.binary_search_by(|tool| key(tool).cmp(wanted)).ok()?;
    tools.get(at)
}

fn catalog_tool(
    spec: ToolSpec,
    endpoint: &Arc<Endpoint>,
    gate: &Arc<EndpointGate>,
    policy: Option<ToolPolicy>,
    limits: &Limits,
    settings: &EngineSettings,
) -> CatalogTool {
    let set = policy.filter(|policy| *policy != ToolPolicy::default()).map(Box::new);
    let policy = set.as_deref().unwrap_or(&NO_POLICY);
    // A policy only ever makes a call stricter, whatever was declared since it was set.
    let risk = declared_risk(&spec, &endpoint.settings).max(policy.risk);
    let accepted = policy.accepted_hash.as_deref() == Some(spec.hash.as_str());
    let state = if !endpoint.settings.enabled {
        ToolState::Disabled
    } else if endpoint.settings.tool_changes == ToolChanges::Review && !accepted {
        ToolState::Quarantined
    } else {
        ToolState::Active
    };
    CatalogTool {
        id: spec.canonical_id(endpoint.settings.dialect),
        requires_confirmation: spec.requires_confirmation
            || policy.requires_confirmation == Some(true)
            || risk == Some(Risk::Reviewed),
        timeout: policy.timeout.or(spec.timeout).unwrap_or(settings.run_timeout).min(MAX_RUN_TIMEOUT),
        pending_ttl: policy.pending_ttl.unwrap_or(Duration::from_millis(limits.pending_ttl_ms)).min(MAX_PENDING_TTL),
        endpoint: Arc::clone(endpoint),
        gate: Arc::clone(gate),
        spec,
        policy: set,
        state,
        risk,
    }
}

/// What the endpoint says of a tool's risk; for an MCP server it is the tenant who says it.
fn declared_risk(spec: &ToolSpec, settings: &EndpointSettings) -> Option<Risk> {
    match settings.dialect {
        Dialect::Topology | Dialect::AgentProvider | Dialect::Median => spec.risk,
        Dialect::Mcp if spec.is_plain_read(settings.trusted) => Some(Risk::Low),
        Dialect::Mcp => Some(settings.default_risk),
    }
}

/// The operator's ceiling with the tenant's own, lower limits. How often to sync is no ceiling: the tenant's word holds.
pub fn limits_in_force(org: &Org, settings: &EngineSettings) -> Limits {
    let ceiling = settings.limits.with(&org.operator_limits);
    let mut limits = ceiling.clamped(&org.tenant_limits);
    limits.sync_interval_s = org.tenant_limits.sync_interval_s.unwrap_or(ceiling.sync_interval_s);
    limits
}

/// What of the operator's networks the organization was given: the part of each grant inside the ceiling.
pub fn egress_policy(org: &Org, settings: &EngineSettings) -> EgressPolicy {
    if settings.egress_default_allow {
        return EgressPolicy { allow: settings.egress_allow.clone() };
    }
    let allow = org
        .egress_allow
        .iter()
        .flat_map(|grant| {
            settings.egress_allow.iter().filter_map(move |ceiling| {
                if ceiling.contains(grant) { Some(*grant) } else { grant.contains(ceiling).then_some(*ceiling) }
            })
        })
        .collect();
    EgressPolicy { allow }
}
