//! Compiled schemas: made on first use, kept while there is room, shared by everyone who validates.

use crate::domain::json::JsonText;
use crate::domain::schema::{CompiledSchema, DefaultDraft, SchemaFault};
use moka::sync::Cache;
use std::sync::Arc;

/// Which schema of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// Of the arguments.
    Input,
    /// Of the result.
    Output,
}

/// What a refused schema weighs.
const REFUSED_BYTES: u32 = 512;

pub(super) struct Schemas {
    compiled: Cache<(u128, Side), Result<Arc<CompiledSchema>, SchemaFault>>,
}

impl Schemas {
    pub(super) fn new(bytes: u64) -> Self {
        let weigh = |_: &(u128, Side), compiled: &Result<Arc<CompiledSchema>, SchemaFault>| match compiled {
            Ok(schema) => schema.weight_bytes(),
            Err(_) => REFUSED_BYTES,
        };
        Self { compiled: Cache::builder().max_capacity(bytes).weigher(weigh).build() }
    }

    /// The compiled schema of one side of the tool whose declaration has this hash. One schema is parsed and compiled
    /// once, however many ask; whoever waits waits for that schema alone.
    pub(super) fn get(
        &self,
        tool_hash: &str,
        side: Side,
        schema: &JsonText,
        draft: DefaultDraft,
    ) -> Result<Arc<CompiledSchema>, SchemaFault> {
        let key = (prefix(tool_hash), side);
        if let Some(found) = self.compiled.get(&key) {
            return found;
        }
        self.compiled.get_with(key, || CompiledSchema::compile_text(schema, draft).map(Arc::new))
    }
}

/// The first half of a SHA-256 in hex: as good a key as the whole, and no allocation.
fn prefix(hash: &str) -> u128 {
    let digits = hash.bytes().take(32).map(|digit| char::from(digit).to_digit(16).unwrap_or_default());
    digits.fold(0, |value, digit| (value << 4) | u128::from(digit))
}
