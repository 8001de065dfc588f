//! The description of the APIs, generated from the handlers, and the pages to browse it with, out of the binary.

use super::call::{Answer, Call};
use super::conditional::{body_etag, conditional_json, to_json};
use super::error::{FieldProblem, Problem, ProblemBody};
use super::routes::Surface;
use super::{agent, callbacks, health, mcp, operator, tenant};
use crate::domain::error_code::ErrorCode;
use crate::engine::catalog::Rendered;
use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use std::sync::{Arc, LazyLock};
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Document, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};
use utoipa_swagger_ui::Config;

/// The pages run no code and load nothing but what this server gives them; Swagger UI draws with inline styles and
/// embedded images.
const PAGES_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "toolgate",
        description = "The gateway between AI agents and the tools that organizations own.\n\nKeys are sent as \
                       `Authorization: Bearer KEY` or as `X-Auth: KEY`. Every refusal is a problem document (RFC 9457).",
    ),
    paths(
        agent::manifest::get,
        agent::run::post,
        agent::runs::get,
        agent::runs::delete,
        mcp::post,
        callbacks::take,
        tenant::org::get,
        tenant::org::patch,
        tenant::endpoints::list,
        tenant::endpoints::create,
        tenant::endpoints::get,
        tenant::endpoints::patch,
        tenant::endpoints::delete,
        tenant::syncs::sync,
        tenant::syncs::list,
        tenant::endpoints::diagnostics,
        tenant::endpoints::rotate_secret,
        tenant::tools::list,
        tenant::tools::get,
        tenant::tools::patch,
        tenant::tools::accept,
        tenant::groups::list,
        tenant::groups::create,
        tenant::groups::get,
        tenant::groups::put,
        tenant::groups::delete,
        tenant::agent_keys::list,
        tenant::agent_keys::create,
        tenant::agent_keys::get,
        tenant::agent_keys::patch,
        tenant::agent_keys::delete,
        tenant::workspace_keys::list,
        tenant::workspace_keys::create,
        tenant::workspace_keys::get,
        tenant::workspace_keys::patch,
        tenant::workspace_keys::delete,
        tenant::runs::list,
        tenant::runs::get,
        tenant::approvals::list,
        tenant::approvals::get,
        tenant::approvals::decide,
        tenant::operations::list,
        tenant::operations::get,
        tenant::deliveries::list,
        tenant::deliveries::get,
        tenant::audit::list,
        tenant::explain::get,
        operator::orgs::list,
        operator::orgs::create,
        operator::orgs::get,
        operator::orgs::patch,
        operator::orgs::delete,
        operator::orgs::create_key,
        operator::usage::get,
        operator::status::get,
        health::alive,
        health::ready,
    ),
    components(schemas(ProblemBody, FieldProblem)),
    modifiers(&Keys, &IdempotencyKeys, &Refusals),
)]
struct Api;

/// The three kinds of key.
struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        for (name, description) in [
            ("agent_key", "`tg_ag_…`: opens /mcp of its organization, through its groups"),
            ("workspace_key", "`tg_ws_…`: opens /v1 of its organization"),
            ("operator_token", "`tg_op_…`: opens /admin/v1"),
        ] {
            let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
            components.add_security_scheme(name, SecurityScheme::Http(scheme));
        }
    }
}

/// Every write takes an `Idempotency-Key`.
struct IdempotencyKeys;

impl Modify for IdempotencyKeys {
    fn modify(&self, document: &mut Document) {
        for (path, item) in &mut document.paths.paths {
            if !matches!(Surface::of_unknown_path(path), Surface::Tenant | Surface::Operator) {
                continue;
            }
            for operation in [&mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten() {
                let key = ParameterBuilder::new()
                    .name("Idempotency-Key")
                    .parameter_in(ParameterIn::Header)
                    .description(Some(
                        "1 to 128 visible characters: the same request with the same key is made once and answered \
                         alike for 24 hours, with `Idempotent-Replay: true` and `null` for every secret",
                    ))
                    .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
                    .build();
                operation.parameters.get_or_insert_default().push(key.into());
            }
        }
    }
}

/// What every operation may answer beside what it says itself, and which key opens it.
struct Refusals;

impl Modify for Refusals {
    fn modify(&self, document: &mut Document) {
        for (path, item) in &mut document.paths.paths {
            let key = match Surface::of_unknown_path(path) {
                Surface::Agent => Some("agent_key"),
                Surface::Tenant => Some("workspace_key"),
                Surface::Operator => Some("operator_token"),
                Surface::Callback | Surface::Public | Surface::Health => None,
            };
            let operations =
                [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten();
            for operation in operations {
                operation.security = key.map(|key| vec![SecurityRequirement::new(key, Vec::<String>::new())]);
                let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
                let refusal = ResponseBuilder::new()
                    .description("Refused: `code` says why")
                    .content("application/problem+json", content)
                    .build();
                operation.responses.responses.insert("default".to_owned(), refusal.into());
                for (status, response) in &mut operation.responses.responses {
                    if let RefOr::T(response) = response
                        && response.description.is_empty()
                    {
                        response.description = meaning(status).to_owned();
                    }
                }
            }
        }
    }
}

/// OpenAPI wants a description of every answer; those that speak for themselves are described here.
fn meaning(status: &str) -> &'static str {
    match status {
        "200" => "Done: the body is the answer",
        "201" => "Made: `Location` says where it is",
        "202" => "Taken: the rest comes later",
        "204" => "Done",
        "304" => "Not changed",
        _ => "The body says more",
    }
}

static DOCUMENT: LazyLock<Rendered> = LazyLock::new(|| {
    let mut document = Api::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let body = to_json(&document);
    let etag = body_etag(&body);
    Rendered { body: body.into(), etag }
});

static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| Arc::new(Config::from("/openapi.json")));

/// The OpenAPI document.
pub(super) async fn openapi(call: Call<()>) -> Answer {
    Ok(conditional_json(call.headers(), DOCUMENT.body.clone(), &DOCUMENT.etag))
}

/// The pages stand under `/docs/`, so that what they load is found beside them.
pub(super) async fn entrance(_: Call<()>) -> Answer {
    Ok(HttpResponse::PermanentRedirect().insert_header((LOCATION, "/docs/")).finish())
}

/// One file of the pages.
pub(super) async fn asset(call: Call<()>) -> Answer {
    let served = utoipa_swagger_ui::serve(call.segment("tail"), Arc::clone(&CONFIG));
    let file = served.map_err(|error| {
        tracing::error!(error, "the API pages cannot be served");
        Problem::internal()
    })?;
    let file = file.ok_or_else(|| Problem::new(ErrorCode::NotFound, "there is no such page"))?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, file.content_type))
        .insert_header((CONTENT_SECURITY_POLICY, PAGES_POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .body(file.bytes.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::routes::ROUTES;
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::from_slice(&DOCUMENT.body).expect("JSON")
    }

    #[test]
    fn every_route_of_the_table_is_in_the_document_and_no_other() {
        // The document does not describe itself and its pages.
        let described = ROUTES.iter().filter(|route| route.surface() != Surface::Public);
        let served: BTreeSet<(String, String)> =
            described.map(|route| (route.pattern.to_owned(), route.verb.as_str().to_lowercase())).collect();
        let document = document();
        let paths = document["paths"].as_object().expect("paths");
        let written: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| {
                let verbs = item.as_object().expect("a path item").keys();
                verbs.map(move |verb| (path.clone(), verb.clone()))
            })
            .collect();
        assert_eq!(served, written);
    }

    #[test]
    fn query_parameters_of_the_table_are_those_of_the_document() {
        let document = document();
        for route in ROUTES {
            let Some(known) = route.query else { continue };
            let operation = &document["paths"][route.pattern][route.verb.as_str().to_lowercase()];
            let written: BTreeSet<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == "query")
                .filter_map(|parameter| parameter["name"].as_str())
                .collect();
            assert_eq!(written, known.iter().copied().collect(), "{} {}", route.verb.as_str(), route.pattern);
        }
    }

    #[test]
    fn the_document_names_its_version_its_keys_and_its_problems() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let keys: BTreeSet<&String> =
            document["components"]["securitySchemes"].as_object().expect("schemes").keys().collect();
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), ["agent_key", "operator_token", "workspace_key"]);
        let run = &document["paths"]["/mcp/run"]["post"];
        assert_eq!(run["security"][0]["agent_key"], Value::Array(Vec::new()));
        let refusal = &run["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(refusal, "#/components/schemas/Problem");
        assert!(document["components"]["schemas"]["Problem"]["properties"]["trace_id"].is_object());
    }

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(members) => {
                    for (name, member) in members {
                        match member {
                            Value::String(target) if name == "$ref" => found.push(target),
                            other => references(other, found),
                        }
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
        }
    }

    #[test]
    fn the_pages_are_in_the_binary_and_point_at_the_document() {
        let page = |path: &str| utoipa_swagger_ui::serve(path, Arc::clone(&CONFIG)).expect("served");
        assert!(page("").is_some_and(|file| file.content_type.starts_with("text/html")));
        let script = page("swagger-initializer.js").expect("in the binary").bytes;
        assert!(String::from_utf8_lossy(&script).contains("/openapi.json"));
        assert!(page("../Cargo.toml").is_none());
    }
}
