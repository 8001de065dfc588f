//! toolgate: the gateway between AI agents and the tools that organizations own.
//!
//! A tenant registers its endpoints; toolgate fetches their manifests, checks them hard, and merges the tools into the
//! organization's one catalog. An agent fetches the manifest its key may see and runs a tool; toolgate coerces and
//! validates, limits, asks a person where the risk demands it, signs and sends the call in the endpoint's own dialect,
//! and brings the answer back, at once or later.
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
//! | [`domain`] | nouns and rules: pure values, no I/O, no clock, no HTTP |
//! | [`dialects`] | what endpoints speak: encode a request, decode an answer, parse a callback |
//! | [`engine`] | the use-cases over ports, and one actor an organization |
//! | [`adapters`] | the store, the way out, metrics, secrets, the clock |
//! | [`http`] | the edge: one table of routes, one sequence of phases |
//! | [`config`] | what the operator sets |
//! | [`telemetry`] | structured logs |
//! | [`app`] | the only place that knows adapters and edges together |
//! | [`cli`] | the program's commands and the client for both APIs |
//! | [`demo`] | a gateway with its providers in one process, and a guided tour |
//!
//! # Invariants
//!
//! **Invariant:** what is listed is exactly what is callable: one visible set answers both.
//!
//! **Invariant:** nothing of one organization reaches another: every store call names its organization, every actor, limit
//! and connection policy belongs to one, and a callback's organization comes from its endpoint.
//!
//! **Invariant:** bytes that were sent are never sent again by themselves, unless the call only reads.
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
pub mod cli;
pub mod config;
pub mod demo;
pub mod dialects;
pub mod domain;
pub mod engine;
pub mod http;
pub mod telemetry;
