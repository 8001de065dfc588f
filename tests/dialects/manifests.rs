//! What each dialect makes of a manifest.

use super::{fixtures, settings};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use toolgate::dialects::{self, Method, OutboundRequest};
use toolgate::domain::endpoint::SyncPolicy;
use toolgate::domain::json::JsonText;
use toolgate::domain::manifest::{Manifest, SyncFault, SyncReason};
use toolgate::domain::risk::Risk;
use toolgate::domain::tool::{DeclaredTool, Dialect, ToolSpec};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFixture {
    why: String,
    #[serde(default)]
    settings: SettingsFixture,
    body: Option<Box<RawValue>>,
    body_text: Option<String>,
    expected: ExpectedManifest,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFixture {
    name_prefix: Option<String>,
    policy: Option<String>,
    #[serde(default)]
    inline: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ExpectedManifest {
    Refused(ExpectedFault),
    Accepted { tools: Vec<Value>, skipped: Vec<ExpectedSkip>, diagnostics: Option<bool> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedFault {
    reason: String,
    message_contains: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedSkip {
    tool: String,
    reason: String,
    #[serde(default)]
    message_contains: Vec<String>,
}

fn check_fault(place: &str, fault: &SyncFault, reason: &str, message_contains: &[String]) {
    assert_eq!(fault.reason.as_str(), reason, "{place}: {}", fault.message);
    for part in message_contains {
        assert!(fault.message.contains(part.as_str()), "{place}: {part:?} is not in {:?}", fault.message);
    }
}

fn parsed(schema: &JsonText) -> Value {
    serde_json::from_str(schema.as_str()).expect("a schema that was taken parses")
}

/// Everything understood of a tool, as JSON.
fn rendered(dialect: Dialect, spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "provider_name": spec.provider_name,
        "id": spec.canonical_id(dialect),
        "title": spec.title,
        "description": spec.description,
        "kind": spec.kind.as_str(),
        "input_schema": parsed(&spec.input_schema),
        "output_schema": spec.output_schema.as_ref().map(parsed),
        "risk": spec.risk.map(Risk::as_str),
        "requires_confirmation": spec.requires_confirmation,
        "llm_format": spec.llm_format,
        "mutating": spec.mutating,
        "timeout_ms": spec.timeout.map(|timeout| timeout.as_millis() as u64),
        "provider": spec.provider.as_deref().map(|terms| json!({
            "contract_version": terms.contract_version,
            "languages": terms.languages,
            "produces_evidence": terms.produces_evidence.words().collect::<Vec<_>>(),
            "action": terms.action,
            "receipt_retention_s": terms.receipt_retention.map(|retention| retention.as_secs()),
        })),
        "plain_read": spec.is_plain_read(true),
        "read_only": spec.mcp.as_deref().map(|mcp| mcp.read_only),
        "declared": spec.mcp.as_deref().map(|mcp| mcp.declared.as_str()),
        "header_params": spec.mcp.as_deref().map(|mcp| {
            mcp.header_params.iter().map(|param| json!([param.path, param.name])).collect::<Vec<_>>()
        }),
    })
}

fn check_tools(place: &str, dialect: Dialect, tools: &[DeclaredTool], expected: &[Value]) {
    assert_eq!(tools.len(), expected.len(), "{place}: number of tools");
    for (tool, expected) in tools.iter().zip(expected) {
        let rendered = rendered(dialect, &tool.spec);
        for (member, value) in expected.as_object().expect("an expected tool is an object") {
            assert_eq!(rendered.get(member), Some(value), "{place}: {member} of {}", tool.spec.name);
        }
        assert_eq!(tool.spec.hash.len(), 64, "{place}");
    }
}

fn decode(dialect: Dialect, fixture: &ManifestFixture) -> Result<Manifest, SyncFault> {
    let mut settings = settings(dialect);
    settings.name_prefix = fixture.settings.name_prefix.clone();
    if let Some(word) = &fixture.settings.policy {
        settings.sync_policy = SyncPolicy::parse(word).expect("a policy");
    }
    let body = match (&fixture.body, &fixture.body_text) {
        (Some(json), None) => json.get(),
        (None, Some(text)) => text,
        (Some(_), Some(_)) | (None, None) => panic!("one body a fixture: {}", fixture.why),
    };
    if fixture.settings.inline {
        settings.inline_manifest = Some(JsonText::parse(body).expect("an inline manifest is JSON"));
    }
    dialects::decode_manifest(&settings, body.as_bytes())
}

/// Checks every manifest of a dialect and answers the reasons that were seen to refuse one whole.
fn check_manifests(dialect: Dialect) -> BTreeSet<&'static str> {
    let mut refused = BTreeSet::new();
    for (place, fixture) in fixtures::<ManifestFixture>(dialect, "manifests") {
        let place = format!("{place} ({})", fixture.why);
        match (&fixture.expected, decode(dialect, &fixture)) {
            (ExpectedManifest::Refused(expected), Err(fault)) => {
                check_fault(&place, &fault, &expected.reason, &expected.message_contains);
                refused.insert(fault.reason.as_str());
            }
            (ExpectedManifest::Accepted { tools, skipped, diagnostics }, Ok(manifest)) => {
                check_tools(&place, dialect, &manifest.tools, tools);
                assert_eq!(manifest.skipped.len(), skipped.len(), "{place}: {:?}", manifest.skipped);
                for (found, expected) in manifest.skipped.iter().zip(skipped) {
                    assert_eq!(found.tool, expected.tool, "{place}");
                    check_fault(&place, &found.fault, &expected.reason, &expected.message_contains);
                }
                assert_eq!(manifest.diagnostics, diagnostics.unwrap_or_default(), "{place}");
                assert_eq!(manifest.hash.len(), 64, "{place}");
            }
            (ExpectedManifest::Refused(expected), Ok(_)) => panic!("{place}: accepted, not {}", expected.reason),
            (ExpectedManifest::Accepted { .. }, Err(fault)) => panic!("{place}: refused: {fault}"),
        }
    }
    refused
}

fn words(reasons: &[SyncReason]) -> BTreeSet<&'static str> {
    reasons.iter().map(|reason| reason.as_str()).collect()
}

#[test]
fn topology_manifests_are_read_by_every_rule() {
    use SyncReason::{BadManifest, BadName, BadRisk, BadSchema, DuplicateName, NotJson, ReservedName};
    let refused = check_manifests(Dialect::Topology);
    assert_eq!(refused, words(&[BadManifest, BadName, BadRisk, BadSchema, DuplicateName, NotJson, ReservedName]));
}

#[test]
fn median_manifests_are_read_by_every_rule() {
    use SyncReason::{
        BadDescription, BadManifest, BadName, BadRisk, BadSchema, DuplicateName, NotJson, ReservedName, TooManyTools,
        UnsupportedVersion,
    };
    let refused = check_manifests(Dialect::Median);
    assert_eq!(
        refused,
        words(&[
            BadDescription,
            BadManifest,
            BadName,
            BadRisk,
            BadSchema,
            DuplicateName,
            NotJson,
            ReservedName,
            TooManyTools,
            UnsupportedVersion
        ])
    );
}

#[test]
fn agent_provider_manifests_are_read_by_every_rule() {
    use SyncReason::{
        BadManifest, BadName, BadSchema, DuplicateName, NotJson, ReservedName, TooManyTools, UnsupportedVersion,
    };
    let refused = check_manifests(Dialect::AgentProvider);
    assert_eq!(
        refused,
        words(&[
            BadManifest,
            BadName,
            BadSchema,
            DuplicateName,
            NotJson,
            ReservedName,
            TooManyTools,
            UnsupportedVersion
        ])
    );
}

#[test]
fn mcp_manifests_are_read_by_every_rule() {
    use SyncReason::{BadManifest, BadName, BadSchema, DuplicateName, NotJson, ReservedName};
    let refused = check_manifests(Dialect::Mcp);
    assert_eq!(refused, words(&[BadManifest, BadName, BadSchema, DuplicateName, NotJson, ReservedName]));
}

#[test]
fn a_body_that_is_not_utf8_is_not_json() {
    for dialect in Dialect::ALL {
        let fault = dialects::decode_manifest(&settings(dialect), b"[\"\xff\"]").expect_err("not UTF-8");
        assert_eq!(fault.reason, SyncReason::NotJson);
    }
}

fn topology_manifest(member: &str) -> Manifest {
    let body = format!(
        r#"[{{"id":"topology:a","title":"A","description":"d","kind":"query","input_schema":{{"type":"object"}}{member}}}]"#
    );
    dialects::decode_manifest(&settings(Dialect::Topology), body.as_bytes()).expect("a good manifest")
}

#[test]
fn every_member_of_a_tool_moves_its_hash_and_blanks_do_not() {
    // IBM/mcp-context-forge#5697
    let plain = topology_manifest("");
    for member in [r#","risk":"high""#, r#","llm_format":true"#, r#","vendor":{"x":1}"#] {
        let changed = topology_manifest(member);
        assert_ne!(changed.tools[0].spec.hash, plain.tools[0].spec.hash, "{member}");
        assert_ne!(changed.hash, plain.hash, "{member}");
    }
    let spaced = topology_manifest("  \n");
    assert_eq!((&spaced.hash, &spaced.tools[0].spec.hash), (&plain.hash, &plain.tools[0].spec.hash));
}

#[test]
fn the_next_good_manifest_heals() {
    // apache/maka#2663: nothing of a refused manifest is remembered.
    let settings = settings(Dialect::Topology);
    let item = |schema: &str| {
        format!(r#"[{{"id":"topology:a","title":"A","description":"d","kind":"query","input_schema":{schema}}}]"#)
    };
    let broken = item(r#"{"type":"object","properties":{"x":{"type":"string","pattern":"["}}}"#);
    let good = item(r#"{"type":"object","properties":{"x":{"type":"string","pattern":"[a-z]"}}}"#);
    assert!(dialects::decode_manifest(&settings, broken.as_bytes()).is_err());
    assert_eq!(dialects::decode_manifest(&settings, good.as_bytes()).map(|manifest| manifest.tools.len()), Ok(1));
}

#[test]
fn manifests_are_asked_for_with_the_credentials_of_the_endpoint() {
    assert_eq!(
        dialects::encode_manifest_request(&settings(Dialect::Topology), Some("\"t\"")),
        OutboundRequest {
            method: Method::Get,
            url: "https://pulse.example/base/mcp/manifest.json".to_owned(),
            headers: vec![("x-auth".into(), "s3cret".to_owned())],
            body: Bytes::new(),
            median_signature: false,
        }
    );
    assert_eq!(
        dialects::encode_manifest_request(&settings(Dialect::Median), Some("\"t\"")),
        OutboundRequest {
            method: Method::Get,
            url: "https://median.example/base/".to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
            median_signature: true,
        }
    );
}
