//! A person's yes to a call, asked through the client's own form. What the model writes never confirms: the answer counts
//! only as the client's answer to this very question, and only together with the sealed token.

use super::RESULT_META;
use super::members::{Members, quoted};
use crate::domain::json::JsonText;
use crate::engine::confirmation::Confirmation;
use serde_json::value::RawValue;

/// Under this name the question stands among a round's questions.
pub(super) const QUESTION: &str = "toolgate_confirmation";

const SCHEMA: &str = r#"{"type":"object","properties":{"confirm":{"type":"boolean","title":"Confirm","description":"Yes, make this call."}},"required":["confirm"]}"#;

/// What a person answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Yes,
    No,
    /// Not at all, or not in a way that could be either.
    Unclear,
}

impl Decision {
    /// Reads the result of an elicitation.
    pub(super) fn read(result: &RawValue) -> Self {
        let Some(result) = Members::of(result.get()) else { return Decision::Unclear };
        let confirm = || result.get("content").and_then(|content| Members::of(content.get()));
        if result.is("action", r#""decline""#) || result.is("action", r#""cancel""#) {
            Decision::No
        } else if !result.is("action", r#""accept""#) {
            Decision::Unclear
        } else {
            match confirm() {
                Some(content) if content.is("confirm", "true") => Decision::Yes,
                Some(content) if content.is("confirm", "false") => Decision::No,
                _ => Decision::Unclear,
            }
        }
    }
}

/// The question of a modern client's next round.
pub(super) fn question(confirmation: &Confirmation) -> String {
    let (message, token) = (quoted(&confirmation.summary), quoted(&confirmation.token));
    format!(
        r#"{{"resultType":"input_required","inputRequests":{{"{QUESTION}":{{"method":"elicitation/create","params":{{"mode":"form","message":{message},"requestedSchema":{SCHEMA}}}}}}},"requestState":{token},{RESULT_META}}}"#
    )
}

/// The question to a client of the earlier era.
pub(super) fn legacy_question(confirmation: &Confirmation) -> JsonText {
    let text = format!(r#"{{"message":{},"requestedSchema":{SCHEMA}}}"#, quoted(&confirmation.summary));
    JsonText::parse(&text).expect("our own text is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    #[test]
    fn only_an_accepted_form_that_says_yes_is_a_yes() {
        for (result, expected) in [
            (r#"{"action":"accept","content":{"confirm":true}}"#, Decision::Yes),
            (r#"{"action":"accept","content":{"confirm":false}}"#, Decision::No),
            (r#"{"action":"decline"}"#, Decision::No),
            (r#"{"action":"cancel","content":{"confirm":true}}"#, Decision::No),
            (r#"{"action":"accept"}"#, Decision::Unclear),
            (r#"{"action":"accept","content":{"confirm":"true"}}"#, Decision::Unclear),
            (r#"{"action":"accept","content":{"confirm":1}}"#, Decision::Unclear),
            (r#"{"content":{"confirm":true}}"#, Decision::Unclear),
            ("true", Decision::Unclear),
        ] {
            let raw = RawValue::from_string(result.to_owned()).expect("JSON");
            assert_eq!(Decision::read(&raw), expected, "{result}");
        }
    }

    #[test]
    fn questions_are_json() {
        let summary = "pay: \"all\"\n".to_owned();
        let confirmation = Confirmation { token: "t".to_owned(), expires_at: Timestamp::from_millis(0), summary };
        let modern: serde_json::Value = serde_json::from_str(&question(&confirmation)).expect("JSON");
        let params = &modern["inputRequests"][QUESTION]["params"];
        assert_eq!(params["message"], "pay: \"all\"\n");
        assert_eq!(params["requestedSchema"]["required"][0], "confirm");
        assert_eq!(modern["requestState"], "t");
        let legacy: serde_json::Value = serde_json::from_str(legacy_question(&confirmation).as_str()).expect("JSON");
        assert_eq!((&legacy["message"], &legacy["requestedSchema"]), (&params["message"], &params["requestedSchema"]));
    }
}
