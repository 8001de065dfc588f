//! `/mcp/runs/{correlation_id}`: looking at a run, and not wanting it any more.

use super::wire;
use crate::engine::access::AgentAccess;
use crate::http::call::{Answer, Call};
use crate::http::conditional::{body_etag, if_none_match};
use crate::http::prefer;
use actix_web::HttpResponse;
use actix_web::http::header::ETAG;

/// Answers a run this key made; with `Prefer: wait=N` as soon as its state changes.
#[utoipa::path(
    get, path = "/mcp/runs/{correlation_id}", tag = "Agent", operation_id = "get_own_run",
    params(
        ("correlation_id" = String, Path, description = "The run"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: seconds to wait for a change, at most 60"),
    ),
    responses(
        (status = 200, description = "The run is over", body = wire::RunAnswer),
        (status = 202, description = "The run goes on", body = wire::RunAnswer),
        (status = 304, description = "Unchanged"),
    ),
)]
pub(in crate::http) async fn get(call: Call<AgentAccess>) -> Answer {
    let wait = prefer::wait(call.headers());
    let run = call.engine().agent_run(&call.access, call.id_in("correlation_id")?, wait).await?;
    let body = wire::run_json(&run);
    let etag = body_etag(&body);
    if if_none_match(call.headers(), &etag) {
        return Ok(HttpResponse::NotModified().insert_header((ETAG, etag)).finish());
    }
    let mut answer = wire::answer(wire::http_status(run.outcome.status), body, wait);
    answer.headers_mut().insert(ETAG, wire::visible(&etag));
    Ok(answer)
}

/// Gives a run up: cancelled when nothing was dispatched or only a result is waited for, else answered as it is.
#[utoipa::path(
    delete, path = "/mcp/runs/{correlation_id}", tag = "Agent", operation_id = "cancel_run",
    params(("correlation_id" = String, Path, description = "The run")),
    responses((status = 200, description = "The run as it is now", body = wire::RunAnswer)),
)]
pub(in crate::http) async fn delete(call: Call<AgentAccess>) -> Answer {
    let run = call.engine().cancel_run(&call.access, call.id_in("correlation_id")?).await?;
    Ok(wire::answer(200, wire::run_json(&run), None))
}
