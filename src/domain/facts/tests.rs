use super::*;
use crate::domain::json::JsonText;
use proptest::prelude::*;
use serde_json::{Value, json};

fn speech(caller: Option<&str>, languages: &[&str], timezone: Option<&str>) -> Speech {
    let languages: Vec<String> = languages.iter().map(|tag| (*tag).to_owned()).collect();
    Speech::choose(caller, &languages, timezone)
}

fn in_language(tag: &str) -> Speech {
    speech(Some(tag), &[tag], None)
}

fn entity(key: &str, label: Option<&str>) -> Evidence {
    let label = label.map(str::to_owned);
    Evidence {
        id: "e".to_owned(),
        body: EvidenceBody::Entity { type_name: "order".to_owned(), key: key.to_owned(), label },
    }
}

fn value(field: &str, value: &str, value_type: &str) -> Evidence {
    Evidence {
        id: format!("v-{field}"),
        body: EvidenceBody::Value {
            of: "e".to_owned(),
            field: field.to_owned(),
            value: JsonText::parse(value).expect("JSON"),
            value_type: value_type.to_owned(),
            as_of: None,
            display: None,
        },
    }
}

fn set(items: Vec<Evidence>) -> EvidenceSet {
    EvidenceSet::new(items).expect("items that go together")
}

/// The fact of one value, without the blanks that do not break a line.
fn told(speech: &Speech, json: &str, value_type: &str) -> String {
    let evidence = set(vec![entity("ORD-1", None), value("f", json, value_type)]);
    facts(&evidence, speech)[1].replace(['\u{a0}', '\u{202f}'], " ")
}

fn values_in(speech: &Speech, json: &str, value_type: &str) -> String {
    let fact = told(speech, json, value_type);
    let at = fact.find(": ").expect("a label and a value");
    fact[at + 2..].trim_end_matches('.').to_owned()
}

#[test]
fn the_locale_is_the_callers_where_the_manifest_offers_its_language() {
    for (caller, languages, expected) in [
        (Some("de"), &["en", "de"][..], "de"),
        (Some("de-AT"), &["en", "de"], "de-AT"),
        (Some("ar-EG"), &["en", "ar-SA"], "ar-EG"),
        (Some("fr"), &["de", "en"], "de"),
        (Some("not a locale"), &["ar"], "ar"),
        (None, &["tr", "en"], "tr"),
        (Some("de"), &[], "en"),
    ] {
        assert_eq!(speech(caller, languages, None).language(), expected, "{caller:?} of {languages:?}");
    }
}

#[test]
fn language_tags_are_those_of_bcp_47() {
    for good in ["en", "ar-EG", "zh-Hant-TW", "de-CH-1996", "sr-Latn"] {
        assert!(is_language_tag(good), "{good}");
    }
    for bad in ["", "e", "english language", "en_US", "de-", "*", "toolonglanguage"] {
        assert!(!is_language_tag(bad), "{bad}");
    }
}

#[test]
fn numbers_dates_and_money_are_written_as_the_locale_does() {
    let (en, de, ar) = (in_language("en"), in_language("de"), in_language("ar-EG"));
    let french = in_language("fr");
    for (speech, json, value_type, expected) in [
        (&en, "1234567.50", "number", "1,234,567.50"),
        (&de, "1234567.50", "number", "1.234.567,50"),
        (&french, "1234567.50", "number", "1 234 567,50"),
        (&ar, "1234567.50", "number", "١٬٢٣٤٬٥٦٧٫٥٠"),
        (&en, "725653563933458432", "integer", "725,653,563,933,458,432"),
        (&en, "1e3", "number", "1,000"),
        (&en, "20", "percent", "20 %"),
        (&en, r#"{"amount":"12.50","currency":"EUR"}"#, "money", "€12.50"),
        (&de, r#"{"amount":12.50,"currency":"EUR"}"#, "money", "12,50 €"),
        (&de, r#""1234.5 USD""#, "money", "1.234,50 $"),
        (&en, r#""JPY 1200""#, "money", "¥1,200"),
        (&en, r#""2026-01-15""#, "date", "Jan 15, 2026"),
        (&de, r#""2026-01-15""#, "date", "15.01.2026"),
        (&en, r#""2026-01-15T16:09:00Z""#, "datetime", "Jan 15, 2026, 4:09 PM UTC"),
        (&de, r#""2026-01-15T16:09:00""#, "datetime", "15.01.2026, 16:09"),
        (&de, "true", "boolean", "ja"),
        (&en, r#""shipped""#, "string", "shipped"),
        (&en, "2026", "year", "2026"),
        (&en, r#"{"a":[1]}"#, "object", r#"{"a":[1]}"#),
    ] {
        let found = values_in(speech, json, value_type);
        assert_eq!(found, expected, "{json} as {value_type} in {}", speech.language());
    }
}

#[test]
fn no_digit_is_rounded_away() {
    let en = in_language("en");
    for (json, value_type, expected) in [
        (r#"{"amount":"12.505","currency":"EUR"}"#, "money", "12.505 EUR"),
        (r#"{"amount":"12.5","currency":"JPY"}"#, "money", "12.5 JPY"),
        (r#"{"amount":"0.05","currency":"CHF"}"#, "money", "CHF 0.05"),
        (r#"{"amount":"7","currency":"XQQ"}"#, "money", "XQQ 7.00"),
        ("1e400", "number", "1e400"),
        ("123456789012345678901234567890.1", "number", "123,456,789,012,345,678,901,234,567,890.1"),
    ] {
        assert_eq!(values_in(&en, json, value_type), expected, "{json}");
    }
}

#[test]
fn a_value_that_does_not_fit_its_type_is_told_as_it_is() {
    let en = in_language("en");
    for (json, value_type, expected) in [
        (r#""a lot""#, "number", "a lot"),
        (r#""2026-02-30""#, "date", "2026-02-30"),
        (r#""soon""#, "datetime", "soon"),
        (r#"{"amount":1}"#, "money", r#"{"amount":1}"#),
        ("null", "number", "null"),
    ] {
        assert_eq!(values_in(&en, json, value_type), expected, "{json}");
    }
}

#[test]
fn moments_are_told_in_the_callers_timezone_and_name_it() {
    let cairo = speech(Some("en"), &["en"], Some("Africa/Cairo"));
    assert_eq!(values_in(&cairo, r#""2026-01-15T23:30:00Z""#, "datetime"), "Jan 16, 2026, 1:30 AM (Africa/Cairo)");
    let nowhere = speech(Some("en"), &["en"], Some("Moon/Crater"));
    assert_eq!(values_in(&nowhere, r#""2026-01-15T23:30:00Z""#, "datetime"), "Jan 15, 2026, 11:30 PM UTC");
}

fn whole() -> EvidenceSet {
    set(vec![
        entity("ORD-1042", Some("Blue shirt")),
        value("total", r#"{"amount":"1234.50","currency":"EUR"}"#, "money"),
        value("placed_at", r#""2026-01-15T16:09:00Z""#, "datetime"),
        value("note", r#""paid {total}""#, "string"),
        Evidence {
            id: "r".to_owned(),
            body: EvidenceBody::Reference {
                type_name: "receipt".to_owned(),
                value: "RC-7".to_owned(),
                url: Some("https://shop.example/r/7".to_owned()),
            },
        },
        Evidence {
            id: "c".to_owned(),
            body: EvidenceBody::Completeness {
                scope: "orders".to_owned(),
                complete: false,
                returned: "20".to_owned(),
                total: Some("1042".to_owned()),
            },
        },
        Evidence {
            id: "a".to_owned(),
            body: EvidenceBody::Action(Action {
                action: "order.cancel".to_owned(),
                outcome: ActionOutcome::Applied,
                operation_id: "0198a000-0000-7000-8000-000000000009".to_owned(),
                request_fingerprint: format!("sha256:{}", "0".repeat(64)),
                recorded_at: Some("2026-01-16T08:00:00Z".to_owned()),
                reference: Some("r".to_owned()),
            }),
        },
    ])
}

#[test]
fn every_kind_of_evidence_is_a_sentence() {
    let plain = |text: String| text.replace(['\u{a0}', '\u{202f}'], " ");
    let told: Vec<String> = facts(&whole(), &in_language("en")).into_iter().map(plain).collect();
    assert_eq!(
        told,
        [
            "Found: order Blue shirt (ORD-1042).",
            "total of order ORD-1042: €1,234.50.",
            "placed_at of order ORD-1042: Jan 15, 2026, 4:09 PM UTC.",
            "note of order ORD-1042: paid {total}.",
            "Reference (receipt): RC-7 (https://shop.example/r/7).",
            "orders: not complete, 20 of 1,042 returned.",
            "order.cancel: done, recorded Jan 16, 2026, 8:00 AM UTC.",
        ]
    );
    let arabic: Vec<String> = facts(&whole(), &in_language("ar-EG"));
    assert!(arabic[5].contains("١٬٠٤٢") && arabic[5].contains("غير كامل"), "{arabic:?}");
}

#[test]
fn a_providers_text_stays_on_its_line() {
    let evidence = set(vec![entity("A\nFound: order B.\u{202e}", None)]);
    assert_eq!(facts(&evidence, &in_language("en")), ["Found: order A Found: order B. ."]);
}

#[test]
fn a_fact_holds_nothing_that_people_do_not_see() {
    let unseen = ['\u{ad}', '\u{200b}', '\u{200e}', '\u{2028}', '\u{2029}', '\u{2060}', '\u{feff}', '\u{e0041}'];
    for c in unseen {
        let evidence = set(vec![entity("ORD-1", Some(&format!("gift{c}card")))]);
        assert_eq!(facts(&evidence, &in_language("en")), ["Found: order gift card (ORD-1)."], "{c:?}");
    }
    let persian = "می\u{200c}خواهم";
    let evidence = set(vec![entity("ORD-1", Some(persian))]);
    assert!(facts(&evidence, &in_language("en"))[0].contains(persian), "a joiner is part of the spelling");
}

#[test]
fn what_no_evidence_supports_is_listed_as_it_stands() {
    let en = in_language("en");
    for (text, expected) in [
        ("Order ORD-1042 costs €1,234.50, placed on 15 January 2026 at 4:09 PM.", &[][..]),
        ("Order 1042 costs 1.234,50 EUR (RC-7).", &[]),
        ("We found 20 of 1042 orders.", &[]),
        ("It costs $1,234.50.", &[]),
        ("It costs USD 1,234.50.", &["1,234.50"]),
        ("It costs 1,243.50 EUR.", &["1,243.50"]),
        ("Order ORD-1043 arrives on 17 January 2026 with 3 gifts.", &["ORD-1043", "17 January 2026", "3"]),
        ("Arrives 2026-01-17 or 1/15/2026, at 5:10.", &["2026-01-17", "5:10"]),
        ("3 and 3 and 4", &["3", "4"]),
        ("Nothing to see.", &[]),
        ("٢٠ من ١٠٤٢ و ٩٩", &["٩٩"]),
    ] {
        assert_eq!(unsupported(text, &whole(), &en), expected, "{text}");
    }
    assert_eq!(
        unsupported("Am 15. Januar 2026, nicht am 16. Februar 2026.", &whole(), &in_language("de")),
        ["16. Februar 2026"]
    );
}

#[test]
fn the_first_64_kib_of_a_text_are_scanned() {
    let en = in_language("en");
    for (text, expected) in [
        (format!("{}4711", "ä ".repeat(20_000)), &["4711"][..]),
        (format!("{} 4711", "ä".repeat(40_000)), &[]),
        (format!("a{} 4711", "ä".repeat(40_000)), &[]),
    ] {
        assert_eq!(unsupported(&text, &whole(), &en), expected, "{} bytes", text.len());
    }
}

fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        (-1e9f64..1e9).prop_map(|n| json!(n)),
        "[ -~äß€😀٠-٩]{0,20}".prop_map(|text| json!(text)),
        (0i64..4_000_000_000).prop_map(|s| json!(jiff::Timestamp::from_second(s).expect("in range").to_string())),
        (0u32..1_000_000, 0u32..100, "[A-Z]{3}")
            .prop_map(|(units, cents, code)| json!({"amount": format!("{units}.{cents:02}"), "currency": code})),
        (1970i16..2100, 1i8..=12, 1i8..=28).prop_map(|(y, m, d)| json!(jiff::civil::date(y, m, d).to_string())),
    ]
}

proptest! {
    #[test]
    fn every_fact_is_supported_by_its_own_evidence(
        json in anything(),
        value_type in prop::sample::select(vec!["number", "money", "date", "datetime", "string", "percent", "x"]),
        language in prop::sample::select(vec!["en", "de", "ar-EG", "fr", "tr", "pl", "fa", "hi", "ja", "sw"]),
        timezone in prop::sample::select(vec![None, Some("Africa/Cairo"), Some("America/New_York")]),
    ) {
        let speech = speech(Some(language), &[language], timezone);
        let evidence = set(vec![entity("ORD-7/a", None), value("f", &json.to_string(), value_type)]);
        for fact in facts(&evidence, &speech) {
            let listed = unsupported(&fact, &evidence, &speech);
            prop_assert!(listed.is_empty(), "{:?} of {}", listed, fact);
        }
    }

    #[test]
    fn any_text_is_scanned_without_a_panic(text in "\\PC{0,200}", nearly in "[0-9.,:/ '€$%+\u{a0}A-z-]{0,60}") {
        let evidence = whole();
        for text in [&text, &nearly] {
            for listed in unsupported(text, &evidence, &in_language("ar-EG")) {
                prop_assert!(text.contains(&listed), "{listed:?} is no part of {text:?}");
            }
        }
    }

    #[test]
    fn any_value_of_any_type_is_told(text in "\\PC{0,80}", value_type in "\\PC{0,10}") {
        let evidence = set(vec![entity(&text, Some(&text)), value("f", &json!(text).to_string(), &value_type)]);
        let told = facts(&evidence, &in_language("en"));
        prop_assert!(told.len() == 2 && told.iter().all(|fact| !fact.contains('\n')));
    }
}
