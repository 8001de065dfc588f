//! The whole gateway from outside: real HTTP in, real providers behind, a real database in a temporary folder. One file
//! a behaviour. Time passes only when a test turns the clock; `support` has what all of them use.

mod arguments;
mod callback_signatures;
mod callbacks;
mod checks;
mod concurrent_edits;
mod confirmation;
mod conventions;
mod crashes;
mod documents;
mod groups;
mod hostile_requests;
mod json_bodies;
mod keys;
mod load;
mod manifest;
mod median;
mod metrics;
mod outbound;
mod program;
mod prometheus;
mod rate_limits;
mod retention;
mod runs;
mod support;
mod sync_failures;
mod sync_sets;
mod sync_times;
mod tenancy;
mod topology;
mod topology_faults;
mod unknown_tools;
