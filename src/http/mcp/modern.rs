//! The present era: every request says who sends it and what it can do, and repeats in headers what the body says, so
//! that whoever stands between need not read bodies. What the two say has to be the same.
//!
//! The order of the checks: the members of `_meta`, the header's revision against it, whether that revision is spoken,
//! then the other headers, then the method.

use super::members::Members;
use super::reply::Fault;
use super::request::{Capabilities, Params, Request, string, text};
use crate::dialects::mcp::{decoded_header, words};
use crate::domain::tool::HeaderParam;
use actix_web::http::header::{HeaderMap, HeaderName};
use serde_json::Value;
use std::borrow::Cow;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Methods that no earlier revision has: whoever calls one is of this era.
const ONLY_MODERN: [&str; 5] = ["server/discover", "subscriptions/listen", "tasks/get", "tasks/update", "tasks/cancel"];

/// Whether a request is of this era.
pub(super) fn is_meant(headers: &HeaderMap, request: &Request<'_>) -> bool {
    let in_meta = || meta(&request.params).is_some_and(|meta| meta.get(words::META_VERSION).is_some());
    is_said_in(headers) || ONLY_MODERN.contains(&request.method.as_ref()) || in_meta()
}

/// Whether the headers name a revision of this era.
pub(super) fn is_said_in(headers: &HeaderMap) -> bool {
    headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok()).is_some_and(|said| !words::is_legacy(said))
}

fn meta<'a>(params: &Params<'a>) -> Option<Members<'a>> {
    Members::of(params.meta?.get())
}

/// Checks what every request of this era carries; answers what its client can do.
pub(super) fn check(headers: &HeaderMap, request: &Request<'_>) -> Result<Capabilities, Fault> {
    let meta = meta(&request.params).ok_or_else(|| Fault::invalid_params("_meta is missing, or is no JSON object"))?;
    let missing = |name: &str, what: &str| Fault::invalid_params(format!("_meta has to hold {name}, {what}"));
    let version = meta.get(words::META_VERSION).and_then(string);
    let version = version.ok_or_else(|| missing(words::META_VERSION, "a string"))?;
    let capabilities = meta.get(words::META_CLIENT_CAPABILITIES);
    let capabilities = capabilities.and_then(|capabilities| Capabilities::read(capabilities.get(), &[]));
    let capabilities = capabilities.ok_or_else(|| missing(words::META_CLIENT_CAPABILITIES, "a JSON object"))?;
    if meta.get(words::META_CLIENT_INFO).is_some_and(|info| !info.get().starts_with('{')) {
        return Err(missing(words::META_CLIENT_INFO, "a JSON object, if anything"));
    }
    same(headers, &PROTOCOL_VERSION, &version)?;
    if version != words::MODERN_VERSION {
        return Err(Fault::unsupported_version(&version));
    }
    same(headers, &METHOD, &request.method)?;
    if let Some(name) = name(request)? {
        let said = one(headers, &NAME)?.ok_or_else(|| missing_header(NAME.as_str()))?;
        let said = decoded_header(said).ok_or_else(|| undecodable(NAME.as_str()))?;
        if said != name {
            return Err(differs(NAME.as_str()));
        }
    }
    Ok(capabilities)
}

/// What `Mcp-Name` repeats; only some methods have it.
fn name<'a>(request: &Request<'a>) -> Result<Option<Cow<'a, str>>, Fault> {
    let params = &request.params;
    let (member, value) = match request.method.as_ref() {
        "tools/call" | "prompts/get" => ("name", params.name),
        "resources/read" => ("uri", params.uri),
        "tasks/get" | "tasks/update" | "tasks/cancel" => ("taskId", params.task_id),
        _ => return Ok(None),
    };
    text(member, value)?.map(Some).ok_or_else(|| Fault::invalid_params(format!("{member} is missing")))
}

/// Checks the headers that repeat arguments of a call.
pub(super) fn check_arguments(headers: &HeaderMap, params: &[HeaderParam], arguments: &str) -> Result<(), Fault> {
    if params.is_empty() {
        return Ok(());
    }
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    for param in params {
        let name = format!("mcp-param-{}", param.name.to_ascii_lowercase());
        let said = one_named(headers, &name)?;
        let said = said.map(|said| decoded_header(said).ok_or_else(|| undecodable(&name))).transpose()?;
        let value = param.path.iter().try_fold(&arguments, |value, member| value.get(member));
        if !agree(said.as_deref(), value.unwrap_or(&Value::Null)) {
            return Err(if said.is_none() { missing_header(&name) } else { differs(&name) });
        }
    }
    Ok(())
}

/// Whether a header and an argument are the same. Numbers are compared as numbers; what no header can carry has none.
fn agree(said: Option<&str>, value: &Value) -> bool {
    match (said, value) {
        (said, Value::Null | Value::Array(_) | Value::Object(_)) => said.is_none(),
        (Some(said), Value::String(text)) => said == text,
        (Some(said), Value::Bool(flag)) => said == if *flag { "true" } else { "false" },
        (Some(said), Value::Number(number)) => match (said.parse::<i64>(), number.as_i64()) {
            (Ok(said), Some(number)) => said == number,
            _ => said.parse::<f64>().ok() == number.as_f64(),
        },
        (None, Value::Number(number)) => !is_safe_integer(number),
        (None, Value::String(_) | Value::Bool(_)) => false,
    }
}

/// Only integers that every reader of JSON keeps are repeated in headers.
fn is_safe_integer(number: &serde_json::Number) -> bool {
    number.as_i64().is_some_and(|number| number.unsigned_abs() < 1 << 53)
}

fn same(headers: &HeaderMap, header: &HeaderName, body: &str) -> Result<(), Fault> {
    match one(headers, header)? {
        None => Err(missing_header(header.as_str())),
        Some(said) if said == body => Ok(()),
        Some(_) => Err(differs(header.as_str())),
    }
}

/// The one value of a header. Two that differ are none: the reader before us may have taken the other.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Fault> {
    one_named(headers, name.as_str())
}

fn one_named<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fault> {
    let mut values = headers.get_all(name);
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.all(|other| other == value));
    text.map(|text| Some(text.trim_matches([' ', '\t']))).ok_or_else(|| {
        Fault::header_mismatch(format!("the header {name} has to be sent once, in visible ASCII characters"))
    })
}

fn missing_header(name: &str) -> Fault {
    Fault::header_mismatch(format!("the header {name} is missing; it repeats what the body says"))
}

fn differs(name: &str) -> Fault {
    Fault::header_mismatch(format!("the header {name} says something else than the body"))
}

fn undecodable(name: &str) -> Fault {
    Fault::header_mismatch(format!("what the header {name} holds between its marks is no base64 of a text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_header_and_its_argument_agree() {
        for (said, value, agrees) in [
            (Some("a"), json!("a"), true),
            (Some("a"), json!("b"), false),
            (None, json!("a"), false),
            (None, json!(null), true),
            (Some("null"), json!(null), false),
            (Some("true"), json!(true), true),
            (Some("True"), json!(true), false),
            (Some("42.0"), json!(42), true),
            (Some("42"), json!(42), true),
            (Some("-7"), json!(-7), true),
            (Some("41"), json!(42), false),
            (Some("x"), json!(42), false),
            (None, json!(42), false),
            (None, json!(1.5), true),
            (None, json!(9_007_199_254_740_993_i64), true),
            (Some("9007199254740992"), json!(9_007_199_254_740_993_i64), false),
            (None, json!({ "a": 1 }), true),
            (Some("{}"), json!({}), false),
        ] {
            assert_eq!(agree(said, &value), agrees, "{said:?} {value}");
        }
    }
}
