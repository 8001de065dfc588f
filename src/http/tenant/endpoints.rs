//! `/v1/endpoints`.

use super::endpoint_wire::{DiagnosticsAnswer, EndpointBody, EndpointItem, EndpointPatchBody, RotatedSecret};
use crate::engine::access::WorkspaceAccess;
use crate::http::call::{Answer, Call};
use crate::http::query::PageParams;
use crate::http::wire::{ListOf, NoMembers, changed, created, if_match, item, list as page_of, no_content, ok};

/// Lists the endpoints, in order of name.
#[utoipa::path(
    get, path = "/v1/endpoints", tag = "Endpoints", operation_id = "list_endpoints",
    params(PageParams),
    responses((status = 200, body = ListOf<EndpointItem>)),
)]
pub(in crate::http) async fn list(call: Call<WorkspaceAccess>) -> Answer {
    let page = call.engine().list_endpoints(&call.access, &call.query().page()?).await?;
    Ok(ok(&page_of(&page, |view| EndpointItem::of(view, None))))
}

/// Registers an endpoint and syncs it; a failed first sync registers it all the same.
#[utoipa::path(
    post, path = "/v1/endpoints", tag = "Endpoints", operation_id = "create_endpoint",
    request_body = EndpointBody,
    responses((status = 201, body = EndpointItem)),
)]
pub(in crate::http) async fn create(call: Call<WorkspaceAccess>) -> Answer {
    let new = call.json::<EndpointBody>()?.into_new()?;
    let (view, secret) = call.engine().create_endpoint(&call.access, new).await?;
    let location = format!("/v1/endpoints/{}", view.endpoint.id);
    Ok(created(&location, &EndpointItem::of(&view, secret.as_ref())))
}

/// Answers one endpoint.
#[utoipa::path(
    get, path = "/v1/endpoints/{id}", tag = "Endpoints", operation_id = "get_endpoint",
    params(("id" = String, Path)),
    responses((status = 200, body = EndpointItem)),
)]
pub(in crate::http) async fn get(call: Call<WorkspaceAccess>) -> Answer {
    let view = call.engine().endpoint(&call.access, call.id()?).await?;
    Ok(item(call.headers(), view.endpoint.version, &EndpointItem::of(&view, None)))
}

/// Changes an endpoint; disabled, its tools are gone at once.
#[utoipa::path(
    patch, path = "/v1/endpoints/{id}", tag = "Endpoints", operation_id = "update_endpoint",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = EndpointPatchBody,
    responses((status = 200, body = EndpointItem)),
)]
pub(in crate::http) async fn patch(call: Call<WorkspaceAccess>) -> Answer {
    let patch = call.json::<EndpointPatchBody>()?.into_patch()?;
    let version = if_match(call.headers())?;
    let view = call.engine().update_endpoint(&call.access, call.id()?, patch, version).await?;
    Ok(changed(view.endpoint.version, &EndpointItem::of(&view, None)))
}

/// Deletes an endpoint with its tools; its pending runs end as cancelled.
#[utoipa::path(
    delete, path = "/v1/endpoints/{id}", tag = "Endpoints", operation_id = "delete_endpoint",
    params(("id" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204)),
)]
pub(in crate::http) async fn delete(call: Call<WorkspaceAccess>) -> Answer {
    call.engine().delete_endpoint(&call.access, call.id()?, if_match(call.headers())?).await?;
    no_content()
}

/// Asks the provider what it says about itself.
#[utoipa::path(
    get, path = "/v1/endpoints/{id}/diagnostics", tag = "Endpoints", operation_id = "get_endpoint_diagnostics",
    params(("id" = String, Path)),
    responses((status = 200, body = DiagnosticsAnswer)),
)]
pub(in crate::http) async fn diagnostics(call: Call<WorkspaceAccess>) -> Answer {
    let diagnostics = call.engine().diagnostics(&call.access, call.id()?).await?;
    Ok(ok(&DiagnosticsAnswer { diagnostics: diagnostics.raw() }))
}

/// Makes a new secret for callbacks; the one before is accepted for another day.
#[utoipa::path(
    post, path = "/v1/endpoints/{id}/rotate-secret", tag = "Endpoints", operation_id = "rotate_endpoint_secret",
    params(("id" = String, Path)),
    responses((status = 200, body = RotatedSecret)),
)]
pub(in crate::http) async fn rotate_secret(call: Call<WorkspaceAccess>) -> Answer {
    let NoMembers {} = call.json_or_nothing()?;
    let (secret, previous_valid_until) = call.engine().rotate_callback_secret(&call.access, call.id()?).await?;
    let secret = secret.reveal().to_owned();
    Ok(ok(&RotatedSecret { secret, previous_valid_until: previous_valid_until.to_string() }))
}
