//! What stands between the engine's ports and the world: each module implements one port and knows no other.

pub mod clock;
pub mod metrics;
pub mod secrets;
pub mod store;
pub mod transport;
