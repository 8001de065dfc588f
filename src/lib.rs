//! toolgate: the gateway between AI agents and the tools that organizations own.
//!
//! A tenant registers its endpoints; toolgate fetches their manifests, checks them hard, and merges the tools into the
//! organization's one catalog. An agent fetches the manifest its key may see and runs a tool; toolgate coerces and
//! validates, limits, asks a person where the risk demands it, signs and sends the call in the endpoint's own dialect,
//! and brings the answer back, at once or later. What changes something has its effect once: an answer that is lost is
//! found again by its receipt, and a call that is repeated under one key is one run.
//!
//! # The map
//!
//! Arrows point one way; `tests/architecture.rs` holds them:
//!
//! ```text
//! domain ← dialects ← engine ← { adapters, http } ← app ← main
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`domain`] | nouns and rules: tools, runs, operations, approvals, evidence, announcements; no I/O, no clock, no HTTP |
//! | [`dialects`] | what endpoints speak: encode a request, decode an answer, parse a callback |
//! | [`engine`] | the use-cases over ports: a run's phases, operations, approvals, webhooks, what is due; one actor an organization |
//! | [`adapters`] | the store, the way out, metrics, secrets, the clock |
//! | [`http`] | the edge: one table of routes, one sequence of phases |
//! | [`config`] | what the operator sets |
//! | [`telemetry`] | structured logs |
//! | [`app`] | the only place that knows adapters and edges together |
//! | [`cli`] | the program's commands and the client for both APIs |
//! | [`check`] | tests a provider against its dialect, one line a rule |
//! | [`demo`] | a gateway with a provider of each dialect in one process, and a guided tour |
//!
//! # Invariants
//!
//! **Invariant:** what is listed is exactly what is callable: one visible set answers both.
//!
//! **Invariant:** nothing of one organization reaches another: every store call names its organization, every actor, limit
//! and connection policy belongs to one, and a callback's organization comes from its endpoint.
//!
//! **Invariant:** bytes that were sent are never sent again by themselves, unless the call only reads, or its provider keeps
//! receipts and does not know the operation: then the same operation goes out, with the same fingerprint and body.
//!
//! **Invariant:** an operation is durable before its first byte leaves, and each of its steps is taken only upon the one
//! before it: of two that would send, on one node or two, one does.
//!
//! **Invariant:** an `Idempotency-Key` stands for one run; it is reserved in the step that makes the run durable.
//!
//! **Invariant:** one approval is one execution: the decision and the right to send are one step, and what was checked when
//! the run was held is checked again in it.
//!
//! **Invariant:** what an application is told is stored together with what happened, and holds no arguments or results.
//!
//! **Invariant:** what is answered 202 is durable.
//!
//! **Invariant:** the last good set of tools stays until a better one is stored whole.
//!
//! **Invariant:** a provider's payload is handed on as the text it came in.
//!
//! **Invariant:** arguments, results and keys are never logged; secrets and payloads are encrypted at rest.
//!
//! **Absent on purpose:** no outbound redirect, no proxy from the environment, no fetched `$ref`, no backtracking pattern,
//! no unbounded queue, no lock around a wait, no clustering of our own.

pub mod adapters;
pub mod app;
pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod dialects;
pub mod domain;
pub mod engine;
pub mod http;
pub mod telemetry;
