//! Validation errors for a model that has to mend its call: what was expected, what came, shortened.

use super::{FieldError, MAX_FIELD_ERRORS};
use crate::domain::json_pointer;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;

/// Most characters of a value, a member name or an option that are repeated.
const ECHOED_CHARS: usize = 64;

/// Most characters of a pattern that are repeated.
const PATTERN_CHARS: usize = 128;

/// Most options of an enumeration, and most alternatives of anyOf and oneOf, that are listed.
const LISTED_OPTIONS: usize = 12;
const LISTED_ALTERNATIVES: usize = 6;

/// Longest message, in characters.
const MESSAGE_CHARS: usize = 600;

/// The errors of a value that is known to be invalid.
pub(super) fn field_errors(validator: &Validator, value: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut nulls = HashSet::new();
    for error in validator.iter_errors(value) {
        if found.len() >= MAX_FIELD_ERRORS {
            break;
        }
        let pointer = error.instance_path().as_str().to_owned();
        if is_refused_null(&error) && is_member(value, &pointer) && !nulls.insert(pointer.clone()) {
            // One refused null fails `type` and `enum` alike; the model has one thing to mend.
            continue;
        }
        push_errors(&mut found, value, &error, pointer);
    }
    found.truncate(MAX_FIELD_ERRORS);
    if !nulls.is_empty() {
        advise_optional_nulls(validator, value, &nulls, &mut found);
    }
    found
}

/// The first error only, of a value too large for a full account.
pub(super) fn first_error(validator: &Validator, value: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    if let Err(error) = validator.validate(value) {
        push_errors(&mut found, value, &error, error.instance_path().as_str().to_owned());
        found.truncate(1);
    }
    found
}

/// That a value is invalid, where the account would be too long.
pub(super) fn bare_error() -> Vec<FieldError> {
    vec![FieldError {
        pointer: String::new(),
        keyword: "$ref".to_owned(),
        message:
            "the value does not fit the schema; it is too large or too deeply nested to say where, send less of it"
                .to_owned(),
    }]
}

fn push_errors(found: &mut Vec<FieldError>, value: &Value, error: &ValidationError<'_>, pointer: String) {
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            push_unknown(found, error.kind().keyword(), &pointer, unexpected);
        }
        Kind::FalseSchema => match closed_object(value, error, &pointer) {
            Some(members) => push_unknown(found, "additionalProperties", &pointer, members.keys()),
            None => found.push(FieldError { pointer, keyword: "falseSchema".to_owned(), message: sentence(error) }),
        },
        kind => found.push(FieldError { pointer, keyword: kind.keyword().to_owned(), message: sentence(error) }),
    }
}

fn push_unknown<'n>(
    found: &mut Vec<FieldError>,
    keyword: &str,
    pointer: &str,
    names: impl IntoIterator<Item = &'n String>,
) {
    found.extend(names.into_iter().take(MAX_FIELD_ERRORS).map(|name| FieldError {
        pointer: pointer.to_owned(),
        keyword: keyword.to_owned(),
        message: format!("the member {} is not known here; leave it out or correct its name", quoted(name)),
    }));
}

/// The object that may have no members at all: the validator then reports its first member as refused by a false schema,
/// at the place of the object.
fn closed_object<'v>(value: &'v Value, error: &ValidationError<'_>, pointer: &str) -> Option<&'v Map<String, Value>> {
    let members = value.pointer(pointer)?.as_object()?;
    let is_closed = error.schema_path().as_str().ends_with("/additionalProperties");
    let first = members.values().next()?;
    (is_closed && first == error.instance().as_ref()).then_some(members)
}

fn is_refused_null(error: &ValidationError<'_>) -> bool {
    let may_be_null = match error.kind() {
        Kind::Type { .. } | Kind::Enum { .. } | Kind::Constant { .. } | Kind::AnyOf { .. } => true,
        kind => matches!(kind, Kind::OneOfNotValid { .. }),
    };
    may_be_null && error.instance().is_null()
}

/// Whether the pointer leads to a member of an object (an element of an array cannot be left out).
fn is_member(value: &Value, pointer: &str) -> bool {
    pointer.rsplit_once('/').and_then(|(parent, _)| value.pointer(parent)).is_some_and(Value::is_object)
}

/// Tells to leave out a null that nothing requires. Whether something does is asked of the validator itself, with the
/// nulls taken away: `required` may stand behind references and conditions.
fn advise_optional_nulls(validator: &Validator, value: &Value, nulls: &HashSet<String>, found: &mut [FieldError]) {
    let mut without = value.clone();
    for (parent, name) in nulls.iter().filter_map(|pointer| pointer.rsplit_once('/')) {
        if let Some(members) = without.pointer_mut(parent).and_then(Value::as_object_mut) {
            members.shift_remove(json_pointer::unescape(name).as_ref());
        }
    }
    let mut required = HashSet::new();
    for error in validator.iter_errors(&without) {
        if let Kind::Required { property: Value::String(name) } = error.kind() {
            let mut pointer = error.instance_path().as_str().to_owned();
            json_pointer::push(&mut pointer, name);
            required.insert(pointer);
        }
    }
    for error in found.iter_mut().filter(|e| nulls.contains(&e.pointer) && !required.contains(&e.pointer)) {
        let name = error.pointer.rsplit_once('/').map_or(Cow::Borrowed(""), |(_, name)| json_pointer::unescape(name));
        error.message = format!(
            "the member {} is optional and was sent as null; leave it out instead ({})",
            quoted(&name),
            error.message
        );
    }
}

/// The whole sentence about one error.
pub(super) fn sentence(error: &ValidationError<'_>) -> String {
    let sentence = match error.kind() {
        Kind::Required { property } => format!("the required member {} is missing; add it", name_of(property)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> = unexpected.iter().take(LISTED_OPTIONS).map(|name| quoted(name)).collect();
            format!("not known here, leave out: {}", names.join(", "))
        }
        Kind::PropertyNames { error: inner } => {
            format!("the member name {} is not allowed: expected {}", shortened(inner.instance()), expected(inner))
        }
        Kind::FalseSchema => "nothing is allowed here; leave it out".to_owned(),
        Kind::UniqueItems => "expected items that all differ; some are equal".to_owned(),
        Kind::MinProperties { .. } | Kind::MaxProperties { .. } => {
            let count = error.instance().as_object().map_or(0, |members| members.len());
            format!("expected {}, got {count}", expected(error))
        }
        Kind::MinItems { .. } | Kind::MaxItems { .. } | Kind::AdditionalItems { .. } => {
            let count = error.instance().as_array().map_or(0, Vec::len);
            format!("expected {}, got {count}", expected(error))
        }
        Kind::MinLength { .. } | Kind::MaxLength { .. } => {
            let count = error.instance().as_str().map_or(0, |text| text.chars().count());
            format!("expected {}, got {count}: {}", expected(error), shortened(error.instance()))
        }
        _ => format!("expected {}, got {}", expected(error), got(error.instance())),
    };
    cut(&sentence, MESSAGE_CHARS).into_owned()
}

/// What was expected, as a noun phrase.
fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind: TypeKind::Single(json_type) } => type_phrase(*json_type).to_owned(),
        Kind::Type { kind: TypeKind::Multiple(types) } => {
            types.iter().map(type_phrase).collect::<Vec<_>>().join(" or ")
        }
        Kind::Enum { options } => match options.as_ref() {
            Value::Array(options) => format!("one of {}", listed(options)),
            other => shortened(other),
        },
        Kind::Constant { expected_value } => format!("exactly {}", shortened(expected_value)),
        Kind::Format { format } => format_phrase(format),
        Kind::Pattern { pattern } => {
            format!("text matching the regular expression {}", in_quotes(pattern, PATTERN_CHARS))
        }
        Kind::Minimum { limit } => format!("at least {}", shortened(limit)),
        Kind::Maximum { limit } => format!("at most {}", shortened(limit)),
        Kind::ExclusiveMinimum { limit } => format!("more than {}", shortened(limit)),
        Kind::ExclusiveMaximum { limit } => format!("less than {}", shortened(limit)),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("at most {limit} items"),
        Kind::MinProperties { limit } => format!("at least {limit} members"),
        Kind::MaxProperties { limit } => format!("at most {limit} members"),
        Kind::Required { property } => format!("an object with the member {}", name_of(property)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("an object without {}", unexpected.first().map_or_else(String::new, |name| quoted(name)))
        }
        Kind::UnevaluatedItems { .. } => "no further items".to_owned(),
        Kind::UniqueItems => "items that all differ".to_owned(),
        Kind::Contains => "an item of the kind that `contains` asks for".to_owned(),
        Kind::Not { schema } => format!("anything but {}", shortened(schema)),
        Kind::FalseSchema => "nothing".to_owned(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(error, context),
        Kind::OneOfMultipleValid { .. } => "a value that fits exactly one alternative of oneOf".to_owned(),
        Kind::PropertyNames { error } => format!("member names that are {}", expected(error)),
        Kind::ContentEncoding { content_encoding } => format!("text encoded as {}", quoted(content_encoding)),
        Kind::FromUtf8 { .. } => "encoded text that is UTF-8".to_owned(),
        Kind::ContentMediaType { content_media_type } => format!("text of the type {}", quoted(content_media_type)),
        Kind::Custom { message, .. } => message.clone(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "text that the pattern can be tried on".to_owned()
        }
        Kind::Referencing(_) => "a schema whose references resolve".to_owned(),
    }
}

/// The alternatives of anyOf or oneOf, each by the first thing it misses.
fn alternatives(error: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>]) -> String {
    let here = error.instance_path().as_str();
    let mut phrases: Vec<String> = Vec::new();
    for branch in context {
        let Some(first) = branch.first() else { continue };
        let path = first.instance_path().as_str();
        let phrase = match path.strip_prefix(here).unwrap_or(path) {
            "" => expected(first),
            deeper => format!("at {}: {}", json_pointer::shortened(deeper.to_owned()), expected(first)),
        };
        if !phrases.contains(&phrase) {
            phrases.push(phrase);
        }
    }
    let more = phrases.len().saturating_sub(LISTED_ALTERNATIVES);
    phrases.truncate(LISTED_ALTERNATIVES);
    let mut text = match phrases.as_slice() {
        [] => return "a value that fits one of the alternatives".to_owned(),
        [only] => only.clone(),
        several => format!("one of these: {}", several.join("; or ")),
    };
    if more > 0 {
        text.push_str(&format!("; or {more} more"));
    }
    text
}

fn listed(options: &[Value]) -> String {
    let mut text = options.iter().take(LISTED_OPTIONS).map(shortened).collect::<Vec<_>>().join(", ");
    if options.len() > LISTED_OPTIONS {
        text.push_str(&format!(" … ({} in all)", options.len()));
    }
    text
}

const fn type_phrase(json_type: JsonType) -> &'static str {
    match json_type {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn format_phrase(format: &str) -> String {
    let example = match format {
        "date" => "2026-01-31",
        "date-time" => "2026-01-31T12:00:00Z",
        "time" => "12:00:00Z",
        "email" => "name@example.com",
        "uri" => "https://example.com/path",
        "uuid" => "01890a5d-ac96-774b-bcce-b302099a8057",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        other => return format!("text in the format {}", quoted(other)),
    };
    format!("text in the format {format:?}, such as {example:?}")
}

fn got(value: &Value) -> String {
    match value {
        Value::String(_) => format!("the string {}", shortened(value)),
        Value::Number(_) => format!("the number {}", shortened(value)),
        Value::Array(_) => format!("the array {}", shortened(value)),
        Value::Object(_) => format!("the object {}", shortened(value)),
        Value::Null | Value::Bool(_) => shortened(value),
    }
}

fn name_of(property: &Value) -> String {
    property.as_str().map_or_else(|| shortened(property), quoted)
}

/// Why a `$schema` is refused.
pub(super) fn unknown_draft(uri: &str) -> String {
    format!(
        "the $schema {} is not known; known are draft-04, draft-06, draft-07, 2019-09 and 2020-12, such as \
         https://json-schema.org/draft/2020-12/schema",
        quoted(uri)
    )
}

/// Why a reference is refused.
pub(super) fn outside_reference(uri: &str) -> String {
    format!(
        "the reference {} leads outside the schema; only references inside the document are resolved, nothing is fetched",
        quoted(uri)
    )
}

/// A name or text in quotes, at most 64 characters of it.
pub(super) fn quoted(text: &str) -> String {
    in_quotes(text, ECHOED_CHARS)
}

/// Backslashes stay as they are, so that a pattern can be recognised; control characters would break the line.
fn in_quotes(text: &str, limit: usize) -> String {
    format!("\"{}\"", cut(text, limit).replace(char::is_control, " "))
}

/// A value as JSON, at most 64 characters of it; a large one is not printed whole.
pub(super) fn shortened(value: &Value) -> String {
    let mut text = FirstBytes(Vec::with_capacity(ECHOED_CHARS));
    // It fails when the value is larger than what is shown, which is the point.
    let _ = serde_json::to_writer(&mut text, value);
    cut(&String::from_utf8_lossy(&text.0), ECHOED_CHARS).into_owned()
}

/// At most `limit` characters of a text, the last of them `…` when something was cut.
fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    match (text.char_indices().nth(limit - 1), text.char_indices().nth(limit)) {
        (Some((end, _)), Some(_)) => Cow::Owned(format!("{}…", &text[..end])),
        _ => Cow::Borrowed(text),
    }
}

/// Keeps enough bytes for 64 characters of any width, then refuses more.
struct FirstBytes(Vec<u8>);

impl std::io::Write for FirstBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = (ECHOED_CHARS * 4 + 4).saturating_sub(self.0.len());
        if room == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        let taken = bytes.len().min(room);
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
