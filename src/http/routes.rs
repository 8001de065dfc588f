//! The one table of everything that is served.
//!
//! A route is a method, a path, what its body has to be, which query parameters it takes, and a handler; the handler's
//! kind is the surface, and with it the key that opens it. All routes of one path have one surface.

use super::call::{Answering, Call};
use super::error::Problem;
use super::{HttpSettings, agent, callbacks, docs, health, mcp, operator, tenant};
use crate::engine::access::{AgentAccess, OperatorAccess, WorkspaceAccess};
use std::sync::LazyLock;

/// Which key opens a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    /// An agent key.
    Agent,
    /// A workspace key.
    Tenant,
    /// The operator token.
    Operator,
    /// A signature of the response node.
    Callback,
    /// Nothing.
    Public,
    /// Nothing, and also while toolgate is stopping.
    Health,
}

impl Surface {
    /// The surface that a path nobody serves belongs to.
    pub(super) fn of_unknown_path(path: &str) -> Self {
        let under = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if under("/mcp") {
            Surface::Agent
        } else if under("/v1") {
            Surface::Tenant
        } else if under("/admin") {
            Surface::Operator
        } else {
            Surface::Public
        }
    }
}

/// The methods that are offered anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }
}

/// What the body of a request has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRule {
    /// Nothing.
    None,
    /// A JSON object.
    Json,
    /// Nothing, or a JSON object.
    Optional,
    /// The JSON object of a run, within a limit of its own.
    Run,
    /// A message of MCP, within the limit of a run; what is wrong with it is told in that protocol's words.
    Message,
    /// A provider's message, within a limit of its own; its numbers are its own business.
    Callback,
}

impl BodyRule {
    pub(super) const fn limit_bytes(self, settings: &HttpSettings) -> usize {
        match self {
            BodyRule::None | BodyRule::Optional | BodyRule::Json => settings.api_body_bytes,
            BodyRule::Run | BodyRule::Message => settings.run_body_bytes,
            BodyRule::Callback => settings.callback_body_bytes,
        }
    }
}

/// A function that answers requests, by the proof it demands.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    Agent(fn(Call<AgentAccess>) -> Answering),
    Tenant(fn(Call<WorkspaceAccess>) -> Answering),
    Operator(fn(Call<OperatorAccess>) -> Answering),
    Callback(fn(Call<()>) -> Answering),
    Public(fn(Call<()>) -> Answering),
    Health(fn(Call<()>) -> Answering),
}

/// One line of the table.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) verb: Verb,
    pub(super) pattern: &'static str,
    pub(super) body: BodyRule,
    /// The query parameters it takes; `None` looks at none.
    pub(super) query: Option<&'static [&'static str]>,
    pub(super) handler: Handler,
}

impl Route {
    /// The surface.
    pub(super) const fn surface(&self) -> Surface {
        match self.handler {
            Handler::Agent(_) => Surface::Agent,
            Handler::Tenant(_) => Surface::Tenant,
            Handler::Operator(_) => Surface::Operator,
            Handler::Callback(_) => Surface::Callback,
            Handler::Public(_) => Surface::Public,
            Handler::Health(_) => Surface::Health,
        }
    }
}

impl Route {
    /// Whether its handler changes something by itself. A run goes on by the engine's own care, an MCP call as its era has
    /// it, and a callback's sender tries again.
    pub(super) fn changes_something(&self) -> bool {
        let by_care_of_others = matches!(self.body, BodyRule::Run | BodyRule::Message | BodyRule::Callback);
        self.verb != Verb::Get && !by_care_of_others
    }
}

/// All routes of one path.
pub(super) struct PathRoutes {
    pub(super) pattern: &'static str,
    pub(super) surface: Surface,
    routes: Vec<Route>,
}

impl PathRoutes {
    /// The route of a method, or 405 with those that there are.
    pub(super) fn route(&self, method: &actix_web::http::Method) -> Result<&Route, Problem> {
        self.routes.iter().find(|route| route.verb.as_str() == method.as_str()).ok_or_else(|| {
            let allowed: Vec<&str> = self.routes.iter().map(|route| route.verb.as_str()).collect();
            Problem::method_not_allowed(allowed.join(", "))
        })
    }
}

/// Paths in the order of their first route.
fn by_path(routes: &[Route]) -> Vec<PathRoutes> {
    let mut paths: Vec<PathRoutes> = Vec::new();
    for route in routes {
        match paths.iter_mut().find(|path| path.pattern == route.pattern) {
            Some(path) => path.routes.push(*route),
            None => {
                paths.push(PathRoutes { pattern: route.pattern, surface: route.surface(), routes: vec![*route] });
            }
        }
    }
    paths
}

const NO_QUERY: &[&str] = &[];
const PAGE: &[&str] = &["limit", "cursor"];
const RUNS: &[&str] = &["limit", "cursor", "status", "tool", "endpoint"];
const BY_STATE: &[&str] = &["limit", "cursor", "state"];
const USAGE: &[&str] = &["from", "to"];
const EXPLAIN: &[&str] = &["agent_key", "tool"];

/// `METHOD "path" Surface(handler) body query`, one line a route.
macro_rules! routes {
    ($($verb:ident $pattern:literal $surface:ident($($handler:ident)::+) $body:ident $query:expr;)*) => {
        &[$(Route {
            verb: Verb::$verb,
            pattern: $pattern,
            body: BodyRule::$body,
            query: $query,
            handler: Handler::$surface(|call| Box::pin($($handler)::+(call))),
        },)*]
    };
}

/// Everything on the main listener.
#[rustfmt::skip]
pub(super) static ROUTES: &[Route] = routes! {
    Get    "/mcp/manifest.json"                    Agent(agent::manifest::get)              None     None;
    Post   "/mcp/run"                              Agent(agent::run::post)                  Run      None;
    Get    "/mcp/runs/{correlation_id}"            Agent(agent::runs::get)                  None     None;
    Delete "/mcp/runs/{correlation_id}"            Agent(agent::runs::delete)               None     None;

    Post   "/mcp"                                  Agent(mcp::post)                         Message  None;

    Post   "/callbacks/{endpoint_id}"              Callback(callbacks::take)                Callback None;

    Get    "/v1/org"                               Tenant(tenant::org::get)                 None     Some(NO_QUERY);
    Patch  "/v1/org"                               Tenant(tenant::org::patch)               Json     Some(NO_QUERY);
    Get    "/v1/endpoints"                         Tenant(tenant::endpoints::list)          None     Some(PAGE);
    Post   "/v1/endpoints"                         Tenant(tenant::endpoints::create)        Json     Some(NO_QUERY);
    Get    "/v1/endpoints/{id}"                    Tenant(tenant::endpoints::get)           None     Some(NO_QUERY);
    Patch  "/v1/endpoints/{id}"                    Tenant(tenant::endpoints::patch)         Json     Some(NO_QUERY);
    Delete "/v1/endpoints/{id}"                    Tenant(tenant::endpoints::delete)        None     Some(NO_QUERY);
    Post   "/v1/endpoints/{id}/sync"               Tenant(tenant::syncs::sync)              Optional Some(NO_QUERY);
    Get    "/v1/endpoints/{id}/syncs"              Tenant(tenant::syncs::list)              None     Some(PAGE);
    Get    "/v1/endpoints/{id}/diagnostics"        Tenant(tenant::endpoints::diagnostics)   None     Some(NO_QUERY);
    Post   "/v1/endpoints/{id}/rotate-secret"      Tenant(tenant::endpoints::rotate_secret) Optional Some(NO_QUERY);
    Get    "/v1/tools"                             Tenant(tenant::tools::list)              None     Some(PAGE);
    Get    "/v1/tools/{name}"                      Tenant(tenant::tools::get)               None     Some(NO_QUERY);
    Patch  "/v1/tools/{name}"                      Tenant(tenant::tools::patch)             Json     Some(NO_QUERY);
    Post   "/v1/tools/{name}/accept"               Tenant(tenant::tools::accept)            Json     Some(NO_QUERY);
    Get    "/v1/groups"                            Tenant(tenant::groups::list)             None     Some(PAGE);
    Post   "/v1/groups"                            Tenant(tenant::groups::create)           Json     Some(NO_QUERY);
    Get    "/v1/groups/{name}"                     Tenant(tenant::groups::get)              None     Some(NO_QUERY);
    Put    "/v1/groups/{name}"                     Tenant(tenant::groups::put)              Json     Some(NO_QUERY);
    Delete "/v1/groups/{name}"                     Tenant(tenant::groups::delete)           None     Some(NO_QUERY);
    Get    "/v1/agent-keys"                        Tenant(tenant::agent_keys::list)         None     Some(PAGE);
    Post   "/v1/agent-keys"                        Tenant(tenant::agent_keys::create)       Json     Some(NO_QUERY);
    Get    "/v1/agent-keys/{id}"                   Tenant(tenant::agent_keys::get)          None     Some(NO_QUERY);
    Patch  "/v1/agent-keys/{id}"                   Tenant(tenant::agent_keys::patch)        Json     Some(NO_QUERY);
    Delete "/v1/agent-keys/{id}"                   Tenant(tenant::agent_keys::delete)       None     Some(NO_QUERY);
    Get    "/v1/workspace-keys"                    Tenant(tenant::workspace_keys::list)     None     Some(PAGE);
    Post   "/v1/workspace-keys"                    Tenant(tenant::workspace_keys::create)   Json     Some(NO_QUERY);
    Get    "/v1/workspace-keys/{id}"               Tenant(tenant::workspace_keys::get)      None     Some(NO_QUERY);
    Patch  "/v1/workspace-keys/{id}"               Tenant(tenant::workspace_keys::patch)    Json     Some(NO_QUERY);
    Delete "/v1/workspace-keys/{id}"               Tenant(tenant::workspace_keys::delete)   None     Some(NO_QUERY);
    Get    "/v1/runs"                              Tenant(tenant::runs::list)               None     Some(RUNS);
    Get    "/v1/runs/{correlation_id}"             Tenant(tenant::runs::get)                None     Some(NO_QUERY);
    Get    "/v1/approvals"                         Tenant(tenant::approvals::list)          None     Some(BY_STATE);
    Get    "/v1/approvals/{id}"                    Tenant(tenant::approvals::get)           None     Some(NO_QUERY);
    Post   "/v1/approvals/{id}"                    Tenant(tenant::approvals::decide)        Json     Some(NO_QUERY);
    Get    "/v1/operations"                        Tenant(tenant::operations::list)         None     Some(BY_STATE);
    Get    "/v1/operations/{id}"                   Tenant(tenant::operations::get)          None     Some(NO_QUERY);
    Get    "/v1/deliveries"                        Tenant(tenant::deliveries::list)         None     Some(BY_STATE);
    Get    "/v1/deliveries/{id}"                   Tenant(tenant::deliveries::get)          None     Some(NO_QUERY);
    Get    "/v1/audit"                             Tenant(tenant::audit::list)              None     Some(PAGE);
    Get    "/v1/explain"                           Tenant(tenant::explain::get)             None     Some(EXPLAIN);

    Get    "/admin/v1/orgs"                        Operator(operator::orgs::list)           None     Some(PAGE);
    Post   "/admin/v1/orgs"                        Operator(operator::orgs::create)         Json     Some(NO_QUERY);
    Get    "/admin/v1/orgs/{id}"                   Operator(operator::orgs::get)            None     Some(NO_QUERY);
    Patch  "/admin/v1/orgs/{id}"                   Operator(operator::orgs::patch)          Json     Some(NO_QUERY);
    Delete "/admin/v1/orgs/{id}"                   Operator(operator::orgs::delete)         None     Some(NO_QUERY);
    Post   "/admin/v1/orgs/{id}/workspace-keys"    Operator(operator::orgs::create_key)     Optional Some(NO_QUERY);
    Get    "/admin/v1/orgs/{id}/usage"             Operator(operator::usage::get)           None     Some(USAGE);
    Get    "/admin/v1/status"                      Operator(operator::status::get)          None     Some(NO_QUERY);

    Get    "/healthz"                              Health(health::alive)                    None     None;
    Get    "/readyz"                               Health(health::ready)                    None     None;
    Get    "/openapi.json"                         Public(docs::openapi)                    None     None;
    Get    "/docs"                                 Public(docs::entrance)                   None     None;
    Get    "/docs/{tail:.*}"                       Public(docs::asset)                      None     None;
};

/// The metrics listener, open.
#[rustfmt::skip]
static OPEN_METRICS_ROUTES: &[Route] = routes! {
    Get    "/metrics"                              Health(health::open_metrics)             None     None;
    Get    "/healthz"                              Health(health::alive)                    None     None;
    Get    "/readyz"                               Health(health::ready)                    None     None;
};

/// The metrics listener, for the operator.
#[rustfmt::skip]
static PROTECTED_METRICS_ROUTES: &[Route] = routes! {
    Get    "/metrics"                              Operator(health::protected_metrics)      None     None;
    Get    "/healthz"                              Health(health::alive)                    None     None;
    Get    "/readyz"                               Health(health::ready)                    None     None;
};

/// [`ROUTES`] by path.
pub(super) static API: LazyLock<Vec<PathRoutes>> = LazyLock::new(|| by_path(ROUTES));

/// The open metrics listener by path.
pub(super) static OPEN_METRICS: LazyLock<Vec<PathRoutes>> = LazyLock::new(|| by_path(OPEN_METRICS_ROUTES));

/// The protected metrics listener by path.
pub(super) static PROTECTED_METRICS: LazyLock<Vec<PathRoutes>> = LazyLock::new(|| by_path(PROTECTED_METRICS_ROUTES));

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::Method;

    #[test]
    fn all_routes_of_a_path_have_its_surface_and_no_method_twice() {
        for path in API.iter() {
            for (at, route) in path.routes.iter().enumerate() {
                assert_eq!(route.surface(), path.surface, "{}", path.pattern);
                assert!(path.routes[..at].iter().all(|other| other.verb != route.verb), "{}", path.pattern);
            }
        }
    }

    #[test]
    fn a_path_has_the_surface_that_an_unknown_path_beside_it_has() {
        for path in API.iter() {
            let expected = Surface::of_unknown_path(path.pattern);
            let keyless = matches!(path.surface, Surface::Callback | Surface::Health | Surface::Public);
            assert!(path.surface == expected || (keyless && expected == Surface::Public), "{}", path.pattern);
        }
        assert_eq!(Surface::of_unknown_path("/mcpx"), Surface::Public);
        assert_eq!(Surface::of_unknown_path("/mcp"), Surface::Agent);
        assert_eq!(Surface::of_unknown_path("/admin/x"), Surface::Operator);
    }

    #[test]
    fn a_method_nobody_offers_is_answered_with_those_that_are() {
        let path = API.iter().find(|path| path.pattern == "/mcp/runs/{correlation_id}").expect("in the table");
        assert!(path.route(&Method::GET).is_ok());
        assert!(path.route(&Method::HEAD).is_err_and(|problem| problem.code().status() == 405));
    }

    #[test]
    fn only_requests_without_a_body_are_get_or_delete() {
        for route in ROUTES {
            let bare = matches!(route.verb, Verb::Get | Verb::Delete);
            assert_eq!(route.body == BodyRule::None, bare, "{} {}", route.verb.as_str(), route.pattern);
        }
    }
}
