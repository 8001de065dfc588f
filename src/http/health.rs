//! Whether this node lives and whether it can serve, and its metrics.

use super::call::{Answer, Call};
use super::conditional::to_json;
use super::error::Problem;
use crate::domain::error_code::ErrorCode;
use crate::engine::access::OperatorAccess;
use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_TYPE;
use serde::Serialize;
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa::ToSchema;

/// An answer of the store is good for as long: whoever asks more often costs it nothing.
const READY_FOR: Duration = Duration::from_millis(500);

/// Whether the node could serve when it was last looked at. Whoever asks meanwhile waits for the look under way.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, bool)>>);

impl Readiness {
    /// What the last look found, or what a new one finds.
    async fn of<F: Future<Output = bool>>(&self, look: impl FnOnce() -> F) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, ready)) = *last
            && at.elapsed() < READY_FOR
        {
            return ready;
        }
        let ready = look().await;
        *last = Some((Instant::now(), ready));
        ready
    }
}

/// The answer of a health check.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`.
    status: &'static str,
}

fn ok() -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).body(to_json(&Health { status: "ok" }))
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "Health", operation_id = "get_health", responses((status = 200, body = Health)))]
pub(super) async fn alive(_: Call<()>) -> Answer {
    Ok(ok())
}

/// The node can serve: its store answers, and it is not stopping.
#[utoipa::path(get, path = "/readyz", tag = "Health", operation_id = "get_readiness", responses((status = 200, body = Health)))]
pub(super) async fn ready(call: Call<()>) -> Answer {
    let engine = call.engine();
    // A stop shows at once.
    if !engine.is_stopping() && call.state.readiness.of(|| engine.ready()).await {
        return Ok(ok());
    }
    let code = if engine.is_stopping() { ErrorCode::Overloaded } else { ErrorCode::StoreUnavailable };
    Err(Problem::new(code, "this node cannot serve now"))
}

/// The metrics, open.
pub(super) async fn open_metrics(call: Call<()>) -> Answer {
    Ok(metrics(&call))
}

/// The metrics, for the operator only.
pub(super) async fn protected_metrics(call: Call<OperatorAccess>) -> Answer {
    Ok(metrics(&call))
}

fn metrics<A>(call: &Call<A>) -> HttpResponse {
    let text = (call.state.render_metrics)();
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "text/plain; version=0.0.4")).body(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn many_questions_at_once_are_one_look_at_the_store() {
        let (readiness, looks) = (Readiness::default(), AtomicUsize::new(0));
        let ask = |answer| {
            let looks = &looks;
            readiness.of(move || async move {
                looks.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
                answer
            })
        };
        assert_eq!(join_all((0..50).map(|_| ask(true))).await, [true; 50]);
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        tokio::time::advance(READY_FOR - Duration::from_millis(1)).await;
        assert!(ask(false).await, "the last answer is still good");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!ask(false).await, "and now it is not");
        assert_eq!(looks.load(Ordering::Relaxed), 2);
    }
}
