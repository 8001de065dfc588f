//! What a registration or a PATCH may say of an endpoint, checked before anything is stored.

use super::{AdminFault, AdminResult, LONGEST_INTERVAL_S, check_slug};
use crate::domain::endpoint::{EndpointAuth, EndpointSettings};
use crate::domain::naming;
use crate::domain::risk::Risk;
use crate::domain::secret::Secret;
use crate::domain::tool::Dialect;
use url::Url;

/// Credentials as a request gives them; which members belong together depends on the dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthInput {
    /// Header name (topology, where it is `X-Auth` when absent, and mcp).
    pub header: Option<String>,
    /// Header value (topology, mcp).
    pub value: Option<Secret>,
    /// The bearer token (agent-provider, mcp).
    pub bearer: Option<Secret>,
    /// The secret requests are signed with (median).
    pub signing_secret: Option<Secret>,
    /// The key the signing secret is derived from (median).
    pub median_key: Option<Secret>,
}

/// Headers that belong to the connection or to toolgate itself.
const FORBIDDEN_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "traceparent",
    "x-callback-url",
    "x-caller-identity",
];

const LONGEST_VALUE: usize = 4096;
const LONGEST_URL: usize = 2048;
const SHORTEST_INTERVAL_S: u64 = 5;

/// Reads the credentials that the dialect wants, and no others.
pub(super) fn endpoint_auth(dialect: Dialect, input: AuthInput) -> AdminResult<EndpointAuth> {
    match dialect {
        Dialect::Topology => topology_auth(input),
        Dialect::AgentProvider => bearer_auth(input, "an agent-provider endpoint takes {\"bearer\":\"…\"}"),
        Dialect::Median => median_auth(input),
        Dialect::Mcp => mcp_auth(input),
    }
}

fn topology_auth(input: AuthInput) -> AdminResult<EndpointAuth> {
    const SHAPE: &str = "a topology endpoint takes {\"header\":\"X-Auth\",\"value\":\"…\"}";
    if input.bearer.is_some() || input.signing_secret.is_some() || input.median_key.is_some() {
        return Err(AdminFault::invalid("/auth", SHAPE));
    }
    let value = input.value.ok_or_else(|| AdminFault::invalid("/auth/value", SHAPE))?;
    header_auth(input.header.unwrap_or_else(|| "X-Auth".to_owned()), value)
}

/// An MCP server takes a bearer token, one header of its own, or nothing.
fn mcp_auth(input: AuthInput) -> AdminResult<EndpointAuth> {
    const SHAPE: &str = "an mcp endpoint takes {\"bearer\":\"…\"}, {\"header\":\"…\",\"value\":\"…\"}, or no auth";
    if input.signing_secret.is_some() || input.median_key.is_some() {
        return Err(AdminFault::invalid("/auth", SHAPE));
    }
    match (input.bearer.is_some(), input.header, input.value) {
        (false, None, None) => Ok(EndpointAuth::None),
        (true, None, None) => bearer_auth(AuthInput { bearer: input.bearer, ..AuthInput::default() }, SHAPE),
        (false, Some(name), Some(value)) => {
            if name.to_ascii_lowercase().starts_with("mcp-") {
                return Err(AdminFault::invalid("/auth/header", format!("the header {name} belongs to the protocol")));
            }
            header_auth(name, value)
        }
        (true, _, _) | (false, _, _) => Err(AdminFault::invalid("/auth", SHAPE)),
    }
}

fn header_auth(name: String, value: Secret) -> AdminResult<EndpointAuth> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_token) {
        return Err(AdminFault::invalid("/auth/header", "give an HTTP header name of at most 64 characters"));
    }
    if FORBIDDEN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(AdminFault::invalid("/auth/header", format!("the header {name} belongs to the gateway")));
    }
    check_header_text("/auth/value", value.reveal())?;
    Ok(EndpointAuth::Header { name, value })
}

/// What goes out in a header has to be one that every server reads alike.
fn check_header_text(pointer: &'static str, text: &str) -> AdminResult<()> {
    let is_visible = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if text.is_empty() || text.len() > LONGEST_VALUE || !is_visible || text.trim() != text {
        return Err(AdminFault::invalid(pointer, format!("give 1 to {LONGEST_VALUE} visible ASCII characters")));
    }
    Ok(())
}

fn bearer_auth(input: AuthInput, shape: &str) -> AdminResult<EndpointAuth> {
    let (None, None, None, None) = (&input.header, &input.value, &input.signing_secret, &input.median_key) else {
        return Err(AdminFault::invalid("/auth", shape));
    };
    let token = input.bearer.ok_or_else(|| AdminFault::invalid("/auth/bearer", shape))?;
    check_header_text("/auth/bearer", token.reveal())?;
    if token.reveal().contains(' ') {
        return Err(AdminFault::invalid("/auth/bearer", "give the token alone, without \"Bearer\" or blanks"));
    }
    Ok(EndpointAuth::Bearer(token))
}

fn median_auth(input: AuthInput) -> AdminResult<EndpointAuth> {
    const SHAPE: &str = "a median endpoint takes {\"signing_secret\":\"…\"} or {\"median_key\":\"…\"}";
    if input.header.is_some() || input.value.is_some() || input.bearer.is_some() {
        return Err(AdminFault::invalid("/auth", SHAPE));
    }
    let auth = match (input.signing_secret, input.median_key) {
        (Some(secret), None) => EndpointAuth::SigningSecret(secret),
        (None, Some(key)) => EndpointAuth::MedianKey(key),
        (Some(_), Some(_)) | (None, None) => return Err(AdminFault::invalid("/auth", SHAPE)),
    };
    let (EndpointAuth::SigningSecret(secret) | EndpointAuth::MedianKey(secret)) = &auth else { return Ok(auth) };
    if secret.reveal().is_empty() || secret.reveal().len() > LONGEST_VALUE {
        return Err(AdminFault::invalid("/auth", format!("give a secret of 1 to {LONGEST_VALUE} bytes")));
    }
    Ok(auth)
}

/// An absolute http(s) URL without user info, query or fragment, written without a trailing slash. An agent-provider
/// lives at its origin, so of its URL nothing else is kept; an MCP server's URL is called exactly as it is given.
pub(super) fn base_url(dialect: Dialect, text: &str) -> AdminResult<String> {
    let invalid = |message: &str| AdminFault::invalid("/base_url", message);
    if text.len() > LONGEST_URL {
        return Err(invalid("give at most 2048 characters"));
    }
    let url = Url::parse(text).map_err(|_| invalid("give an absolute URL such as https://tools.example.com"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("give an https URL (http only where the operator allows the address)"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("give credentials in auth, never in the URL"));
    }
    if (url.query().is_some() && dialect != Dialect::Mcp) || url.fragment().is_some() {
        return Err(invalid("give a URL without query and fragment"));
    }
    Ok(match dialect {
        Dialect::AgentProvider => url.origin().ascii_serialization(),
        Dialect::Topology | Dialect::Median => url.as_str().trim_end_matches('/').to_owned(),
        Dialect::Mcp => url.into(),
    })
}

/// An absolute http(s) URL without user info and fragment, called exactly as it is written.
pub(super) fn hook_url(pointer: &str, text: &str) -> AdminResult<String> {
    let invalid = |message: &str| AdminFault::invalid(pointer, message);
    if text.len() > LONGEST_URL {
        return Err(invalid("give at most 2048 characters"));
    }
    // What a parser would mend is refused, as this is what is signed for and shown.
    let is_clean = text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let parsed = Url::parse(text).ok().filter(|_| is_clean);
    let url = parsed.ok_or_else(|| invalid("give an absolute URL such as https://hooks.example.com/toolgate"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("give an https URL (http only where the operator allows the address)"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(invalid("give a URL without user info and fragment; requests are signed"));
    }
    Ok(text.to_owned())
}

/// What holds for settings whatever request made them.
pub(super) fn check_settings(settings: &EndpointSettings) -> AdminResult<()> {
    check_slug("/name", &settings.name)?;
    if settings.name_prefix.as_deref().is_some_and(|prefix| !naming::is_name_prefix(prefix)) {
        let message = "give 1 to 16 of A-Z, a-z, 0-9, _ and -, beginning with a letter";
        return Err(AdminFault::invalid("/name_prefix", message));
    }
    if let Some(seconds) = settings.sync_interval_s
        && seconds != 0
        && !(SHORTEST_INTERVAL_S..=LONGEST_INTERVAL_S).contains(&seconds)
    {
        let message = format!("give 0 (off) or seconds from {SHORTEST_INTERVAL_S} to {LONGEST_INTERVAL_S}");
        return Err(AdminFault::invalid("/sync/interval_s", message));
    }
    let inline = settings.inline_manifest.is_some();
    match settings.dialect {
        Dialect::Topology => Ok(()),
        Dialect::AgentProvider | Dialect::Median | Dialect::Mcp if inline => {
            Err(AdminFault::invalid("/manifest", "only a topology may declare its tools inline"))
        }
        Dialect::Median if settings.sync_policy == crate::domain::endpoint::SyncPolicy::Skip => {
            Err(AdminFault::invalid("/sync/policy", "a median manifest is taken whole or refused; give \"reject\""))
        }
        Dialect::AgentProvider | Dialect::Median | Dialect::Mcp => Ok(()),
    }
}

/// Trust and risk are the tenant's to set where the provider's own word is none.
pub(super) fn check_trust(dialect: Dialect, trusted: Option<bool>, risk: Option<Risk>) -> AdminResult<()> {
    match dialect {
        Dialect::Mcp => Ok(()),
        Dialect::Topology | Dialect::AgentProvider | Dialect::Median => {
            let pointer = [("/trusted", trusted.is_some()), ("/default_risk", risk.is_some())];
            let given = pointer.into_iter().find(|(_, given)| *given);
            given.map_or(Ok(()), |(pointer, _)| Err(AdminFault::invalid(pointer, "only an mcp endpoint takes this")))
        }
    }
}
