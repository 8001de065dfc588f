use super::*;
use proptest::prelude::*;
use serde_json::json;

fn canonical(text: &str) -> String {
    to_canonical(&serde_json::from_str(text).expect("JSON"))
}

// RFC 8785, appendix B.
#[test]
fn doubles_are_written_as_the_rfc_lists_them() {
    for (bits, text) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(to_canonical(&json!(f64::from_bits(bits))), text, "{bits:016x}");
    }
}

// RFC 8785, section 3.2.2 and 3.2.3.
#[test]
fn the_example_of_the_rfc_is_written_as_there() {
    let text = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    assert_eq!(
        canonical(text),
        "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
         \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
    );
}

// RFC 8785, section 3.2.3: UTF-16 order puts the emoji before U+FB33.
#[test]
fn members_are_sorted_by_utf16_units() {
    let text = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let sorted = canonical(text);
    let order: Vec<usize> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
        .into_iter()
        .map(|word| sorted.find(word).expect("present"))
        .collect();
    assert!(order.is_sorted(), "{sorted}");
    assert_eq!(canonical(r#"{"b":{"z":1,"a":[{"y":1,"x":2}]},"a":0}"#), r#"{"a":0,"b":{"a":[{"x":2,"y":1}],"z":1}}"#);
}

// oceanbase/powercontext#1098: two different integers shared a fingerprint.
#[test]
fn oceanbase_powercontext_1098_integers_keep_all_their_digits() {
    for integer in
        ["725653563933458432", "725653563933458433", "18446744073709551615", "-9223372036854775808", "9007199254740993"]
    {
        assert_eq!(canonical(integer), integer);
    }
    let hash = |text: &str| sha256_hex(&serde_json::from_str(text).expect("JSON"));
    assert_ne!(hash("{\"id\":725653563933458432}"), hash("{\"id\":725653563933458433}"));
}

#[test]
fn equal_numbers_are_written_alike() {
    for (written, text) in
        [("-0", "0"), ("-0.0", "0"), ("20.0", "20"), ("2e1", "20"), ("1.50", "1.5"), ("1e20", "100000000000000000000")]
    {
        assert_eq!(canonical(written), text);
    }
}

#[test]
fn strings_escape_only_what_they_must() {
    assert_eq!(
        to_canonical(&json!("\u{0}\u{8}\t\n\u{c}\r\u{1f}\u{7f}\u{2028}/\"\\é😀")),
        "\"\\u0000\\b\\t\\n\\f\\r\\u001f\u{7f}\u{2028}/\\\"\\\\é😀\""
    );
}

// The vector of the wire contract, section 5.1.
#[test]
fn the_fingerprint_vector_holds() {
    let value = json!({
        "workspace": "ws_1", "tool": "request.create", "subject": "whatsapp:+201000000000",
        "contract_version": "2026-09-01", "arguments": {"reference": "REQ-7", "category": "plumbing"}
    });
    assert_eq!(sha256_hex(&value), "7bf4dd79f8a8ea782f2a9ae11443393a5e024fa25358ee3edfb046570947f53b");
}

proptest! {
    #[test]
    fn canonical_text_is_json_of_the_same_value_whatever_the_order(
        members in prop::collection::vec((any::<String>(), any::<i64>()), 0..12)
    ) {
        let forward: Value = Value::Object(members.iter().map(|(k, v)| (k.clone(), json!(v))).collect());
        let text = to_canonical(&forward);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), forward.clone());
        let backward: Value = match forward {
            Value::Object(members) => Value::Object(members.into_iter().rev().collect()),
            other => other,
        };
        prop_assert_eq!(to_canonical(&backward), text);
    }
}
