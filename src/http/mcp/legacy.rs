//! The earlier era: a client opens with `initialize`. Nothing of that is kept: only a client that can be asked is given
//! a session, which is what it said, sealed; any other says all that matters with each request.

use super::members::Members;
use super::reply::{Fault, Reply};
use super::request::{Capabilities, Params, text};
use super::{INSTRUCTIONS, SERVER_INFO, modern};
use crate::dialects::mcp::words;
use crate::domain::json::JsonText;
use crate::engine::access::AgentAccess;
use crate::engine::mcp::session::Session;
use crate::http::call::Call;
use actix_web::HttpResponse;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What of a client's capabilities stands in its session: what its tools' servers may ask it.
const KEPT: [&str; 3] = ["elicitation", "sampling", "roots"];

/// Longest capabilities that a session carries, in bytes; of longer ones only the names are kept.
const LONGEST_CAPABILITIES: usize = 2048;

/// Opens a dialogue.
pub(super) fn initialize(call: &Call<AgentAccess>, id: &str, params: &Params<'_>) -> HttpResponse {
    match opened(call, params) {
        Err(fault) => Reply::Fault(fault).for_legacy().respond(id),
        Ok((result, session)) => {
            let mut answer = Reply::Result(result).respond(id);
            let session = session.and_then(|session| HeaderValue::from_str(&session).ok());
            if let Some(session) = session {
                answer.headers_mut().insert(SESSION, session);
            }
            answer
        }
    }
}

fn opened(call: &Call<AgentAccess>, params: &Params<'_>) -> Result<(String, Option<String>), Fault> {
    let wanted = text("protocolVersion", params.protocol_version)?
        .ok_or_else(|| Fault::invalid_params("protocolVersion is missing"))?;
    let capabilities = params.capabilities.map_or("{}", |capabilities| capabilities.get());
    let capabilities = Capabilities::read(capabilities, &KEPT)
        .ok_or_else(|| Fault::invalid_params("capabilities is a JSON object"))?;
    let version = words::LEGACY_VERSIONS.into_iter().find(|version| *version == wanted);
    let version = version.unwrap_or(words::LEGACY_VERSIONS[0]);
    let result = format!(
        r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{}},"prompts":{{}},"resources":{{}}}},"serverInfo":{SERVER_INFO},"instructions":"{INSTRUCTIONS}"}}"#
    );
    let session =
        capabilities.elicitation.then(|| call.engine().seal_session(&call.access, version, bounded(&capabilities)));
    Ok((result, session))
}

/// What a session carries of them.
fn bounded(capabilities: &Capabilities) -> JsonText {
    let told_on = capabilities.told_on.as_deref().unwrap_or("{}");
    let short = if told_on.len() <= LONGEST_CAPABILITIES {
        told_on.to_owned()
    } else {
        let has = |name| Members::of(told_on).is_some_and(|members| members.get(name).is_some());
        let modes = if capabilities.form { r#"{"form":{}}"# } else { r#"{"url":{}}"# };
        let others = ["sampling", "roots"].into_iter().filter(|name| has(name));
        let others: String = others.map(|name| format!(r#","{name}":{{}}"#)).collect();
        format!(r#"{{"elicitation":{modes}{others}}}"#)
    };
    JsonText::parse(&short).expect("an object that was read, or one of our own")
}

/// Checks what every later message of this era carries; answers its session, if it has one.
pub(super) fn check(call: &Call<AgentAccess>) -> Result<Option<Session>, Fault> {
    check_version(call.headers())?;
    let Some(shown) = call.headers().get(SESSION) else { return Ok(None) };
    let session = shown.to_str().ok().and_then(|shown| call.engine().open_session(&call.access, shown));
    session
        .map(Some)
        .ok_or_else(|| Fault::new(404, words::INVALID_REQUEST, "there is no such session; initialize anew"))
}

/// A client that says no revision is one of before there was a header for it.
fn check_version(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(said) = headers.get(modern::PROTOCOL_VERSION) else { return Ok(()) };
    let said = said.to_str().unwrap_or_default();
    if words::LEGACY_VERSIONS.contains(&said) { Ok(()) } else { Err(Fault::unsupported_version(said)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_carries_no_more_than_fits_a_header() {
        let carried = |json: &str| bounded(&Capabilities::read(json, &KEPT).expect("an object")).as_str().to_owned();
        assert_eq!(carried(r#"{"elicitation":{},"x":1}"#), r#"{"elicitation":{}}"#);
        let long = "x".repeat(LONGEST_CAPABILITIES);
        assert_eq!(
            carried(&format!(r#"{{"elicitation":{{"url":{{}}}},"roots":{{"{long}":1}}}}"#)),
            r#"{"elicitation":{"url":{}},"roots":{}}"#
        );
        assert_eq!(
            carried(&format!(r#"{{"elicitation":{{}},"sampling":{{"{long}":1}}}}"#)),
            r#"{"elicitation":{"form":{}},"sampling":{}}"#
        );
    }
}
