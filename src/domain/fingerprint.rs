//! The fingerprint of a mutation: what makes two calls the same operation.

use super::canonical;
use serde_json::{Value, json};

/// What stands before the digits.
pub const PREFIX: &str = "sha256:";

/// What a fingerprint is made of.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprinted<'a> {
    /// Coerced arguments.
    pub arguments: &'a Value,
    /// The manifest's `contract_version`.
    pub contract_version: &'a str,
    /// The id of `context.subject`.
    pub subject: &'a str,
    /// The provider's own name of the tool.
    pub tool: &'a str,
    /// The organization's slug.
    pub workspace: &'a str,
}

/// `sha256:` and the hex SHA-256 of the canonical JSON of these five.
pub fn fingerprint(of: Fingerprinted<'_>) -> String {
    let value = json!({
        "arguments": of.arguments,
        "contract_version": of.contract_version,
        "subject": of.subject,
        "tool": of.tool,
        "workspace": of.workspace,
    });
    format!("{PREFIX}{}", canonical::sha256_hex(&value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector(arguments: &Value) -> String {
        fingerprint(Fingerprinted {
            arguments,
            contract_version: "2026-09-01",
            subject: "whatsapp:+201000000000",
            tool: "request.create",
            workspace: "ws_1",
        })
    }

    // The vector of the wire contract, section 5.1.
    #[test]
    fn the_vector_holds_whatever_the_order_of_the_arguments() {
        let expected = "sha256:7bf4dd79f8a8ea782f2a9ae11443393a5e024fa25358ee3edfb046570947f53b";
        assert_eq!(vector(&json!({"category": "plumbing", "reference": "REQ-7"})), expected);
        assert_eq!(vector(&json!({"reference": "REQ-7", "category": "plumbing"})), expected);
    }

    // oceanbase/powercontext#1098: two different integers shared a fingerprint.
    #[test]
    fn integers_beyond_a_double_and_other_scripts_count_in_full() {
        assert_ne!(
            vector(&json!({"id": 9_007_199_254_740_992_u64})),
            vector(&json!({"id": 9_007_199_254_740_993_u64}))
        );
        assert_ne!(vector(&json!({"name": "مها"})), vector(&json!({"name": "مهى"})));
        // Composed and decomposed text are different bytes, so they are different calls.
        assert_ne!(vector(&json!({"name": "\u{e9}"})), vector(&json!({"name": "e\u{301}"})));
    }

    #[test]
    fn every_part_counts() {
        let arguments = json!({});
        let base =
            Fingerprinted { arguments: &arguments, contract_version: "v", subject: "s", tool: "t", workspace: "w" };
        let other = json!({"a": null});
        let all = [
            base,
            Fingerprinted { arguments: &other, ..base },
            Fingerprinted { contract_version: "x", ..base },
            Fingerprinted { subject: "x", ..base },
            Fingerprinted { tool: "x", ..base },
            Fingerprinted { workspace: "x", ..base },
        ];
        let distinct: std::collections::HashSet<String> = all.into_iter().map(fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
    }

    proptest! {
        #[test]
        fn a_fingerprint_is_the_same_again_and_well_formed(name in any::<String>(), number in any::<i64>()) {
            let arguments = json!({ name: number });
            let text = vector(&arguments);
            prop_assert_eq!(&text, &vector(&arguments));
            let digits = text.strip_prefix(PREFIX).expect("the prefix");
            prop_assert!(digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        }
    }
}
