//! Homes of the [`Store`](crate::engine::store_port::Store) port. The only place that knows a database driver.

pub mod sqlite;
