use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn refused(body: &[u8]) -> String {
    scan(body).expect_err("should be refused").message
}

fn accepted(body: &str) {
    assert_eq!(scan(body.as_bytes()), Ok(()), "{body}");
    serde_json::from_str::<Value>(body).expect("what passes the scan is JSON");
}

#[test]
fn ordinary_json_passes() {
    for body in [
        "{}",
        "[]",
        " {\"a\" : [1, 2.5e3, -0, true, false, null, \"x\\n\\u00e9\\ud83d\\ude00\"], \"b\":{}} \r\n",
        "\"text\"",
        "0",
        "{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}",
        "{\"\":1,\" \":2}",
        "\"\u{7f}ünï\"",
    ] {
        accepted(body);
    }
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for body in [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{,}",
        "[,1]",
        "tru",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "-01",
        "0x10",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12",
        "\"\t\"",
        "[1}",
        "{\"a\":1]",
        "[1 2]",
        "{\"a\" 1}",
        "// x\n1",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800x\"",
    ] {
        let message = refused(body.as_bytes());
        assert!(message.contains("byte") || message.contains("empty"), "{body}: {message}");
        assert!(serde_json::from_str::<Value>(body).is_err(), "{body} is JSON after all");
    }
}

#[test]
fn bytes_around_the_value_are_refused() {
    assert!(refused(b"\xEF\xBB\xBF{}").contains("byte order mark"));
    assert!(refused(b"{} {}").contains("more bytes follow"));
    assert!(refused(b"{}\0").contains("more bytes follow"));
    assert!(refused(b"{\"a\":\"\xFF\"}").contains("byte 6 is not valid UTF-8"));
    assert!(refused(b"\"\xED\xA0\x80\"").contains("UTF-8"));
}

#[test]
fn the_message_points_to_the_place() {
    assert!(refused(b"{\"args\":{\"list\":[1,{\"a/b\":x}]}}").contains("/args/list/1/a~1b"));
    assert!(refused(b"{\"args\":{\"n\":1e999}}").contains("/args/n"));
}

// docker/mcp-gateway#414: one spelling passed the check and the other was run.
#[test]
fn docker_mcp_gateway_414_duplicate_members_are_refused_whatever_their_spelling() {
    for body in [
        r#"{"name":"ok","name":"secret"}"#,
        r#"{"name":"ok","\u006eame":"secret"}"#,
        r#"{"\u006eame":"ok","\u006Eame":"secret"}"#,
        r#"{"a":[{"b":{"name":1,"x":2,"name":3}}]}"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        r#"{"\/":1,"/":2}"#,
    ] {
        assert!(refused(body.as_bytes()).contains("stands twice"), "{body}");
    }
    assert!(refused(br#"{"a":[{"b":{"name":1,"name":3}}]}"#).contains("/a/0/b"));
    // Names are compared case-sensitively: these are two different members, of which one is unknown.
    accepted(r#"{"name":"ok","Name":"secret"}"#);
    accepted(r#"{"a":{"name":1},"name":2}"#);
}

#[test]
fn duplicates_in_a_large_object_are_found_in_linear_time() {
    let members: Vec<String> = (0..100_000).map(|i| format!("\"m{i}\":{i}")).collect();
    accepted(&format!("{{{}}}", members.join(",")));
    for twice in ["m0", "m99999", r"\u006d50"] {
        let body = format!("{{{},\"{twice}\":0}}", members.join(","));
        assert!(refused(body.as_bytes()).contains("stands twice"));
    }
}

#[test]
fn long_names_are_not_echoed_whole() {
    let name = "n".repeat(5_000);
    let message = refused(format!("{{\"{name}\":1,\"{name}\":2}}").as_bytes());
    assert!(message.len() < 200, "{}", message.len());
    let message = refused(format!("{{\"{name}\":x}}").as_bytes());
    assert!(message.len() < 400, "{}", message.len());
}

#[test]
fn nesting_ends_at_64_levels() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    accepted(&nested(64));
    assert!(refused(nested(65).as_bytes()).contains("64 levels"));
    let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    accepted(&objects(64));
    assert!(refused(objects(65).as_bytes()).contains("64 levels"));
    assert!(refused("[".repeat(1_000_000).as_bytes()).contains("64 levels"));
}

// oceanbase/powercontext#1098: 725653563933458432 came out rounded.
#[test]
fn oceanbase_powercontext_1098_numbers_that_keep_their_value_pass() {
    for number in [
        "725653563933458432",
        "-9223372036854775808",
        "18446744073709551615",
        "9223372036854775808",
        "0",
        "-0",
        "-0.0",
        "0e0",
        "123456789012345e1",
        "0.00000123456789012345",
        "1.50000000000000000000",
        "100000000000000000000.0",
        "1e300",
        "9.99999999999999e300",
        "1e-300",
        "1E+5",
        "10e299",
        "0.1e-299",
    ] {
        accepted(number);
    }
}

// oceanbase/powercontext#1098: what cannot be kept is refused, and the message says what to do.
#[test]
fn oceanbase_powercontext_1098_numbers_that_would_change_are_refused() {
    for number in [
        "-9223372036854775809",
        "18446744073709551616",
        "100000000000000000000",
        "123456789012345678901234567890",
        "0.1234567890123456",
        "1234567890123456.5",
        "9007199254740993.0",
        "1e301",
        "10e300",
        "1e-301",
        "1e999",
        "0e301",
        "1e99999999999999999999999",
        "-1e400",
    ] {
        let body = format!("{{\"args\":{{\"id\":{number}}}}}");
        let message = refused(body.as_bytes());
        assert!(message.contains("/args/id") && message.contains("send it as a string"), "{number}: {message}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-999_999_999_999_999_i64..=999_999_999_999_999, -250_i32..=250)
            .prop_map(|(digits, exponent)| serde_json::from_str(&format!("{digits}e{exponent}")).expect("a number")),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        any::<String>().prop_map(Value::from),
        "[\\PC\\x00-\\x1f\"\\\\]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..24)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_json_writes_passes(value in any_json()) {
        let text = value.to_string();
        prop_assert_eq!(scan(text.as_bytes()), Ok(()));
        let pretty = serde_json::to_string_pretty(&value).expect("prints");
        prop_assert_eq!(scan(pretty.as_bytes()), Ok(()));
        prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }

    #[test]
    fn what_passes_serde_json_accepts(body in prop::collection::vec(any::<u8>(), 0..64)) {
        if scan(&body).is_ok() {
            prop_assert!(serde_json::from_slice::<Value>(&body).is_ok());
        }
    }

    #[test]
    fn json_like_bytes_never_panic_and_pass_only_as_json(
        body in "[\\[\\]{}:,\"\\\\ue0-9.+\\-a-f trlsn\u{e9}]{0,40}"
    ) {
        if scan(body.as_bytes()).is_ok() {
            prop_assert!(serde_json::from_str::<Value>(&body).is_ok());
        }
    }

    #[test]
    fn broken_json_passes_only_as_json(value in any_json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut body = value.to_string().into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        if scan(&body).is_ok() {
            prop_assert!(serde_json::from_slice::<Value>(&body).is_ok());
        }
        if scan(&body[..at]).is_ok() {
            prop_assert!(serde_json::from_slice::<Value>(&body[..at]).is_ok());
        }
    }

    #[test]
    fn a_decimal_that_passes_keeps_its_digits(digits in 1_u64..=999_999_999_999_999, exponent in -280_i32..=280) {
        let text = format!("{digits}e{exponent}");
        prop_assert_eq!(scan(text.as_bytes()), Ok(()));
        let read: f64 = serde_json::from_str(&text).expect("a number");
        let significant = digits.to_string();
        let significant = significant.trim_end_matches('0');
        let printed = format!("{read:e}");
        let (mantissa, _) = printed.split_once('e').expect("scientific");
        prop_assert_eq!(mantissa.replace('.', ""), significant);
    }
}

#[test]
fn a_providers_numbers_pass_as_they_come_and_nothing_else_does() {
    for body in [r#"{"n":123456789012345678901234567890,"m":1e999,"d":0.12345678901234567}"#, "[1.5e-400]"] {
        assert!(scan(body.as_bytes()).is_err(), "{body}");
        assert_eq!(scan_structure(body.as_bytes()), Ok(()), "{body}");
    }
    for body in [r#"{"a":1,"a":2}"#, "[01]", "[1.]", "1 2", "\u{feff}1", &"[".repeat(65)] {
        assert!(scan_structure(body.as_bytes()).is_err(), "{body}");
    }
}
