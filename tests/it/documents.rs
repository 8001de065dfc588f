//! `/openapi.json` and `/docs`: what the gateway says about itself.

use crate::support::gate::Gate;
use crate::support::openapi::{document, operations};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn the_document_is_openapi_3_1() {
    let gate = Gate::start();
    let document = document(gate.client());
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")));
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let schemes = document["components"]["securitySchemes"].as_object().expect("security schemes");
    let mut ids = BTreeSet::new();
    for operation in operations(gate.client()) {
        let (what, description) = (format!("{} {}", operation.method, operation.path), &operation.description);
        assert!(operation.path.starts_with('/'), "{what}");
        assert!(["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&operation.method.as_str()), "{what}");
        let id = description["operationId"].as_str().unwrap_or_else(|| panic!("{what} has no operationId"));
        assert!(ids.insert(id.to_owned()), "{what}: {id} is there twice");
        assert!(description["summary"].as_str().is_some_and(|text| !text.is_empty()), "{what} says nothing");
        let wanted = match operation.path.split('/').nth(1) {
            Some("mcp") => Some("agent_key"),
            Some("v1") => Some("workspace_key"),
            Some("admin") => Some("operator_token"),
            _ => None,
        };
        match wanted {
            Some(scheme) => {
                assert_eq!(description["security"].as_array().map(Vec::len), Some(1), "{what}");
                assert!(description["security"][0][scheme].is_array() && schemes.contains_key(scheme), "{what}");
            }
            None => assert!(
                description["security"].is_null() || description["security"] == Value::Array(Vec::new()),
                "{what}"
            ),
        }
        assert_parameters(&what, &operation.path, description);
        assert_responses(&document, &what, description);
        if operation.takes_a_body() {
            let schema = &description["requestBody"]["content"]["application/json"]["schema"];
            assert!(resolved(&document, schema).is_object(), "{what} takes a body of no schema");
        }
    }
    assert!(ids.len() >= 45, "{} operations", ids.len());
    assert_references(&document, &document);
}

/// Every `{parameter}` of the path is described, and no other one of the path.
fn assert_parameters(what: &str, path: &str, description: &Value) {
    let braced = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let in_path: BTreeSet<&str> = braced.collect();
    let described = description["parameters"].as_array().into_iter().flatten();
    let mut seen = BTreeSet::new();
    for parameter in described {
        let (name, place) = (parameter["name"].as_str().expect("a name"), parameter["in"].as_str().expect("a place"));
        assert!(["path", "query", "header"].contains(&place), "{what} {name}");
        assert!(parameter["schema"].is_object(), "{what} {name} has no schema");
        if place == "path" {
            assert_eq!(parameter["required"], true, "{what} {name}");
            seen.insert(name);
        }
    }
    assert_eq!(seen, in_path, "{what}");
}

/// There is a good answer with its schema, and problems are described as such.
fn assert_responses(document: &Value, what: &str, description: &Value) {
    let responses = description["responses"].as_object().expect("responses");
    assert!(responses.keys().any(|status| status.starts_with('2')), "{what} never succeeds");
    for (status, response) in responses {
        assert!(status == "default" || (status.len() == 3 && status.parse::<u16>().is_ok()), "{what} {status}");
        assert!(response["description"].is_string(), "{what} {status}");
        if status == "200" || status == "201" {
            let content = response["content"].as_object().unwrap_or_else(|| panic!("{what} {status} says nothing"));
            assert!(content.values().all(|media| resolved(document, &media["schema"]).is_object()), "{what} {status}");
        }
    }
    let problem = &responses["default"]["content"]["application/problem+json"]["schema"];
    let members = &resolved(document, problem)["properties"];
    for member in ["type", "title", "status", "detail", "code", "trace_id", "errors", "retry_after_ms"] {
        assert!(members[member].is_object(), "{what}: a problem has {member}");
    }
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null),
        None => schema,
    }
}

fn assert_references(document: &Value, value: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                assert!(reference.starts_with("#/") && document.pointer(&reference[1..]).is_some(), "{reference}");
            }
            members.values().for_each(|member| assert_references(document, member));
        }
        Value::Array(items) => items.iter().for_each(|item| assert_references(document, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_document_is_what_is_served() {
    let gate = Gate::start();
    for operation in operations(gate.client()) {
        // Nobody's key: a route that is there says so before it looks at anything else.
        let status = gate.client().request(&operation.method, &operation.at("x")).send().status;
        let wanted = match operation.path.as_str() {
            "/healthz" | "/readyz" => 200,
            _ => 401,
        };
        assert_eq!(status, wanted, "{} {}", operation.method, operation.path);
    }
    let answer = gate.get("/openapi.json").send().expect(200);
    let etag = answer.header("etag").expect("a tag").to_owned();
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("application/json")));
    gate.get("/openapi.json").header("If-None-Match", etag).send().expect(304);
}

#[test]
fn the_pages_come_out_of_the_binary_and_load_nothing_from_elsewhere() {
    let gate = Gate::start();
    let entrance = gate.get("/docs").send();
    assert!((300..400).contains(&entrance.status), "{}", entrance.status);
    assert_eq!(entrance.header("location"), Some("/docs/"));
    let page = gate.get("/docs/").send().expect(200);
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("http"), "{policy}");
    let html = page.text();
    for elsewhere in ["http://", "https://", "src=\"//", "href=\"//"] {
        assert!(!html.contains(elsewhere), "{elsewhere}: {html}");
    }
    let mut kinds = BTreeSet::new();
    let quoted = ["src=\"", "href=\""].into_iter().flat_map(|start| html.split(start).skip(1));
    for link in quoted.filter_map(|rest| rest.split('"').next()) {
        let file = gate.get(&format!("/docs/{}", link.trim_start_matches("./"))).send().expect(200);
        assert!(!file.body.is_empty(), "{link}");
        kinds.insert(file.header("content-type").expect("a type").split(';').next().expect("a type").to_owned());
    }
    assert!(kinds.iter().any(|kind| kind.contains("javascript")) && kinds.contains("text/css"), "{kinds:?}");
    let start = gate.get("/docs/swagger-initializer.js").send().expect(200);
    assert!(start.text().contains("/openapi.json") && !start.text().contains("petstore"));
    for outside in ["/docs/../Cargo.toml", "/docs/%2e%2e/Cargo.toml", "/docs/nothing.js"] {
        gate.get(outside).send().problem(404, "not_found");
    }
}
