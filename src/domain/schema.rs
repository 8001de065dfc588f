//! JSON Schema: what toolgate takes, compiled validators, and errors a model can act on.
//!
//! A schema comes from a provider and runs on every call, so it is bounded before it is compiled: its size, its
//! references (inside the document only, nothing is ever fetched) and its patterns (a linear-time engine, bounded size).

mod formats;
mod message;
mod name_pattern;
pub(crate) mod resolve;
mod schema_limits;
mod visit_budget;

#[cfg(test)]
mod tests;

use super::coerce::coerce_as;
use super::json::JsonText;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use schema_limits::SchemaSize;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use visit_budget::{Account, VisitBudget};

pub(crate) use name_pattern::name_matches;
pub use schema_limits::{MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES};

/// The draft of a schema that does not name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefaultDraft {
    /// Draft 7 (topology tools).
    Draft7,
    /// 2020-12 (all others).
    Draft202012,
}

/// One fault of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// RFC 6901, relative to the validated value.
    pub pointer: String,
    /// The JSON Schema keyword that failed.
    pub keyword: String,
    /// What is wrong and how to mend it.
    pub message: String,
}

/// Most errors that are reported at once.
pub const MAX_FIELD_ERRORS: usize = 20;

/// A schema ready to coerce and to validate; some 12 KB, so it is compiled on first use and kept in a bounded cache.
#[derive(Debug)]
pub struct CompiledSchema {
    /// The schema itself: coercion walks it.
    schema: Value,
    default_draft: DefaultDraft,
    validator: Validator,
    visits: VisitBudget,
    weight_bytes: u32,
}

/// Why a schema is refused, as a sentence for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaFault(pub String);

/// Checks a schema's size, metaschema, references and patterns, without keeping the validator.
pub fn check(schema: &Value, default_draft: DefaultDraft) -> Result<(), SchemaFault> {
    build(schema, default_draft).map(drop)
}

fn build(schema: &Value, default_draft: DefaultDraft) -> Result<(Validator, SchemaSize), SchemaFault> {
    let size = SchemaSize::measure(schema)?;
    let draft = draft_of(schema, default_draft)?;
    schema_limits::check_references(schema)?;
    let build = || options(draft, &size).build(schema).map_err(|error| refusal(&error));
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(built) => built.map(|validator| (validator, size)),
        Err(_) => Err(SchemaFault("the schema cannot be compiled".to_owned())),
    }
}

impl CompiledSchema {
    /// Compiles a schema. A panic of the compiler is a refused schema.
    pub fn compile(schema: Value, default_draft: DefaultDraft) -> Result<Self, SchemaFault> {
        let (validator, size) = build(&schema, default_draft)?;
        let visits = VisitBudget::new(&schema, default_draft, &size);
        Ok(Self { schema, default_draft, validator, visits, weight_bytes: size.weight_bytes() })
    }

    /// Parses and compiles a schema that is kept as text.
    pub fn compile_text(schema: &JsonText, default_draft: DefaultDraft) -> Result<Self, SchemaFault> {
        // What was checked and then printed always parses; a text of another make may hold a number that no `Value` can.
        let parsed = serde_json::from_str(schema.as_str());
        Self::compile(
            parsed.map_err(|error| SchemaFault(format!("the schema cannot be read: {error}")))?,
            default_draft,
        )
    }

    /// Coerces a value in place by the types the schema declares; true when anything changed.
    pub fn coerce(&self, value: &mut Value) -> bool {
        coerce_as(&self.schema, self.default_draft, value)
    }

    /// Validates a value; at most [`MAX_FIELD_ERRORS`] errors.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<FieldError>> {
        if !self.visits.allows(&self.schema, value) {
            return Err(message::bare_error());
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        Err(match self.visits.account_of(&self.schema, value) {
            Account::Full => message::field_errors(&self.validator, value),
            Account::First => message::first_error(&self.validator, value),
            Account::Bare => message::bare_error(),
        })
    }

    /// Roughly how many bytes the compiled schema takes with its tree, for a cache that is bounded by weight.
    pub const fn weight_bytes(&self) -> u32 {
        self.weight_bytes
    }
}

fn draft_of(schema: &Value, default_draft: DefaultDraft) -> Result<Draft, SchemaFault> {
    match schema.get("$schema") {
        Some(Value::String(uri)) => match Draft::from_schema_uri(uri) {
            Draft::Unknown => Err(SchemaFault(message::unknown_draft(uri))),
            known => Ok(known),
        },
        Some(_) => Err(SchemaFault("$schema has to be a string".to_owned())),
        None => Ok(match default_draft {
            DefaultDraft::Draft7 => Draft::Draft7,
            DefaultDraft::Draft202012 => Draft::Draft202012,
        }),
    }
}

fn options(draft: Draft, size: &SchemaSize) -> jsonschema::ValidationOptions<'static> {
    let patterns = PatternOptions::regex()
        .size_limit(size.pattern_size_limit_bytes())
        .dfa_size_limit(size.pattern_size_limit_bytes());
    formats::assert_known(jsonschema::options())
        .with_draft(draft)
        .offline()
        .with_pattern_options(patterns)
        .should_ignore_unknown_formats(true)
}

fn refusal(error: &ValidationError<'_>) -> SchemaFault {
    let place = match (error.instance_path().as_str(), error.schema_path().as_str()) {
        // A fault found while compiling stands at the schema path; one against the metaschema has an instance path.
        ("", "") => "the top level",
        ("", schema_path) => schema_path,
        (instance_path, _) => instance_path,
    };
    let place = super::json_pointer::shortened(place.to_owned());
    SchemaFault(match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => pattern_refusal(error.instance(), &place),
        ValidationErrorKind::PropertyNames { error: inner } if is_regex_fault(inner) => {
            pattern_refusal(inner.instance(), &place)
        }
        ValidationErrorKind::Referencing(error) => reference_refusal(error),
        _ => format!("the schema is not valid at {place}: {}", message::sentence(error)),
    })
}

fn is_regex_fault(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Format { format } if format == "regex")
}

fn pattern_refusal(pattern: &Value, place: &str) -> String {
    let pattern = pattern.as_str().map_or_else(|| message::shortened(pattern), message::quoted);
    format!(
        "the pattern {pattern} at {place} cannot be used: it is not a regular expression for a linear-time engine (no \
         look-around, no back-references) or is too large"
    )
}

fn reference_refusal(error: &jsonschema::ReferencingError) -> String {
    use jsonschema::ReferencingError as Reference;
    match error {
        Reference::Unretrievable { uri, .. } => message::outside_reference(uri),
        Reference::PointerToNowhere { pointer } => {
            format!("the reference {} leads to nothing in the schema", message::quoted(pointer))
        }
        Reference::NoSuchAnchor { anchor } => {
            format!("the anchor {} does not exist in the schema", message::quoted(anchor))
        }
        Reference::UnknownSpecification { specification } => message::unknown_draft(specification),
        Reference::InvalidPercentEncoding { pointer, .. } | Reference::InvalidArrayIndex { pointer, .. } => {
            format!("the reference {} is not a JSON pointer", message::quoted(pointer))
        }
        Reference::InvalidAnchor { anchor } => format!("the anchor {} is not valid", message::quoted(anchor)),
        Reference::InvalidUri(_) => "a reference or identifier of the schema is not a URI".to_owned(),
        Reference::CircularMetaschema { uri } => {
            format!("the $schema {} refers to itself", message::quoted(uri))
        }
    }
}
