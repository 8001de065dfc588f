//! Names: slugs, tool names, and when two names clash.

/// Longest tool name in a catalog, in characters.
pub const MAX_TOOL_NAME: usize = 64;

/// Tool names that begin with this are toolgate's own.
pub const RESERVED_TOOL_PREFIX: &str = "toolgate_";

/// Names of organizations, endpoints and groups: `[a-z0-9][a-z0-9-]{0,62}`.
pub fn is_slug(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!(bytes.first(), Some(b'a'..=b'z' | b'0'..=b'9'))
        && bytes.len() <= 63
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// An endpoint's `name_prefix`: `[A-Za-z][A-Za-z0-9_-]{0,15}`.
pub fn is_name_prefix(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!(bytes.first(), Some(b'A'..=b'Z' | b'a'..=b'z'))
        && bytes.len() <= 16
        && bytes.iter().all(|b| matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// The form in which two tool names are compared: names that differ only by case or by `.`, `-`, `_` clash, because
/// clients that cannot write one of those characters replace it.
pub fn fold(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '.' | '-') { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// The name for protocols whose names have no dots.
pub fn without_dots(name: &str) -> String {
    name.replace('.', "_")
}

/// Whether the catalog name is one of toolgate's own.
pub fn is_reserved(name: &str) -> bool {
    fold(name).starts_with(RESERVED_TOOL_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slugs_follow_the_contract() {
        for good in ["a", "0", "acme-1", &"a".repeat(63)] {
            assert!(is_slug(good), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a.b", "ä", &"a".repeat(64)] {
            assert!(!is_slug(bad), "{bad}");
        }
    }

    #[test]
    fn prefixes_follow_the_contract() {
        for good in ["a", "Z9_-", &"a".repeat(16)] {
            assert!(is_name_prefix(good), "{good}");
        }
        for bad in ["", "1a", "_a", "a.b", &"a".repeat(17)] {
            assert!(!is_name_prefix(bad), "{bad}");
        }
    }

    #[test]
    fn toolgate_names_are_reserved_in_every_spelling() {
        for name in ["toolgate_get_run", "Toolgate-x", "toolgate.x"] {
            assert!(is_reserved(name), "{name}");
        }
        assert!(!is_reserved("toolgate"));
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing(name in "[A-Za-z0-9._-]{1,64}") {
            prop_assert_eq!(fold(&fold(&name)), fold(&name));
        }

        #[test]
        fn names_that_differ_by_case_or_separator_clash(name in "[a-z0-9._-]{1,64}") {
            prop_assert_eq!(fold(&name.to_uppercase()), fold(&name));
            prop_assert_eq!(fold(&name.replace('.', "-")), fold(&name.replace('-', "_")));
        }
    }
}
