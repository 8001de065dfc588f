//! Which formats are asserted: eight, in every draft alike. All others are annotations.

use jsonschema::ValidationOptions;

/// Formats the validator would assert in some draft, and toolgate does not.
const ANNOTATIONS: [&str; 11] = [
    "duration",
    "hostname",
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
];

/// date, date-time, time, email, uri, ipv4 and ipv6 are the validator's own; uuid is ours, since the older drafts do
/// not know it.
pub(super) fn assert_known(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    let asserting = options.should_validate_formats(true).with_format("uuid", is_uuid);
    ANNOTATIONS.into_iter().fold(asserting, |options, format| options.with_format(format, |_: &str| true))
}

/// The hyphenated form of RFC 9562 only.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}
