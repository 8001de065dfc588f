//! Whether a member name is claimed by a `patternProperties` pattern, with the validator's own engine.

use super::schema_limits::ONE_PATTERN_BYTES;
use jsonschema::{PatternOptions, Validator};
use moka::sync::Cache;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

/// Patterns kept compiled. They are rare and each may be large, so few are kept.
const KEPT_PATTERNS: u64 = 128;

type Compiled = Option<Arc<Validator>>;

static PATTERNS: LazyLock<Cache<String, Compiled>> = LazyLock::new(|| Cache::new(KEPT_PATTERNS));

/// Whether the pattern matches the name. A pattern that cannot be used counts as matching: its schema was refused, and
/// nothing is coerced on a guess.
pub(crate) fn name_matches(pattern: &str, name: &str) -> bool {
    let compiled = PATTERNS.get(pattern).unwrap_or_else(|| {
        let compiled = compile(pattern);
        PATTERNS.insert(pattern.to_owned(), compiled.clone());
        compiled
    });
    compiled.is_none_or(|validator| validator.is_valid(&Value::String(name.to_owned())))
}

fn compile(pattern: &str) -> Compiled {
    let patterns = PatternOptions::regex().size_limit(ONE_PATTERN_BYTES).dfa_size_limit(ONE_PATTERN_BYTES);
    let options = jsonschema::options().offline().with_pattern_options(patterns);
    let schema = json!({"pattern": pattern});
    catch_unwind(AssertUnwindSafe(|| options.build(&schema).ok())).ok().flatten().map(Arc::new)
}
