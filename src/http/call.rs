//! What a handler is given.

use super::error::Problem;
use super::query::Query;
use super::{HttpState, json};
use crate::domain::trace::TraceContext;
use crate::engine::Engine;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use std::str::FromStr;

/// What a handler answers.
pub(super) type Answer = Result<HttpResponse, Problem>;

/// A handler at work.
pub(super) type Answering = LocalBoxFuture<'static, Answer>;

/// One request that has passed every phase before its handler. `A` is the proof of who asks.
pub(super) struct Call<A> {
    pub(super) state: web::Data<HttpState>,
    pub(super) head: HttpRequest,
    pub(super) access: A,
    /// Within its limit, and scanned when it is JSON; empty when the route takes none.
    pub(super) body: Bytes,
    /// toolgate's own step of the trace.
    pub(super) trace: TraceContext,
}

impl<A> Call<A> {
    /// The use-cases.
    pub(super) fn engine(&self) -> &Engine {
        &self.state.engine
    }

    /// The request's headers.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }

    /// A segment of the path.
    pub(super) fn segment(&self, name: &str) -> &str {
        self.head.match_info().get(name).unwrap_or_default()
    }

    /// The id in the path. What is no id names nothing: 404, like an id that is not there.
    pub(super) fn id<T: FromStr>(&self) -> Result<T, Problem> {
        self.id_in("id")
    }

    /// The id in the segment with this name.
    pub(super) fn id_in<T: FromStr>(&self, segment: &str) -> Result<T, Problem> {
        self.segment(segment).parse().map_err(|_| Problem::not_found())
    }

    /// The body as a wire type.
    pub(super) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        json::parse(&self.body)
    }

    /// The body as a wire type; no body is an object without members.
    pub(super) fn json_or_nothing<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        if self.body.is_empty() { json::parse(b"{}") } else { self.json() }
    }

    /// The query parameters; the phases have refused those the route does not take.
    pub(super) fn query(&self) -> Query {
        Query::of(self.head.query_string())
    }
}
