//! `toolgate demo --once`.

use super::process::{PROGRAM, command};

#[test]
fn every_step_of_the_tour_does_what_it_should() {
    let output = command(PROGRAM).args(["demo", "--once"]).output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains('✗') && text.contains("✓ all "), "{text}");
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "too wide: {wide:#?}");
    for promised in [
        "curl -i http",
        "202 Accepted",
        "409 Conflict",
        "422 Unprocessable Entity",
        "429 Too Many Requests",
        "\"facts\": [",
        "\"unsupported\": [\"14\"]",
        "idempotent-replay: true",
        "\"receipt\": {",
        "\"confirmation_required\"",
        "\"awaiting_approval\"",
    ] {
        assert!(text.contains(promised), "{promised} is not shown");
    }
}
