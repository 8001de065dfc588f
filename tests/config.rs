//! The configuration as an operator meets it.

use std::collections::BTreeSet;
use std::path::Path;
use toolgate::config::{Config, ConfigFaults, LogFormat, StoreConfig, documented_keys};
use toolgate::domain::key::{KeyKind, mint};
use toolgate::domain::org::{Limits, Retention};

const TOKEN: &str = "tg_op_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3XKEij";
const MASTER: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_MASTER: &str = "HxoVEAsGAQMFBwkLDQ8RExUXGRsdHwACBAYICgwOEBI=";

fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigFaults> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("toolgate.toml");
    std::fs::write(&path, file).expect("the file can be written");
    let variables = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(Some(&path), variables)
}

fn faults(file: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let faults = load(file, environment).expect_err("this configuration is wrong");
    let lines: Vec<String> = faults.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), faults.iter().count(), "a line a mistake");
    lines
}

#[track_caller]
fn assert_one_fault(file: &str, environment: &[(&str, &str)], parts: &[&str]) {
    let lines = faults(file, environment);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in parts {
        assert!(lines[0].contains(part), "{part} is not in: {}", lines[0]);
    }
}

#[test]
fn without_file_and_environment_the_documented_defaults_hold() {
    let config = Config::load(None, std::iter::empty()).expect("the defaults are good");
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.public_url_at(config.server.listen), "http://127.0.0.1:8080");
    assert!(config.server.workers >= 1);
    assert_eq!(config.metrics.listen.to_string(), "127.0.0.1:9464");
    assert_eq!(config.metrics.max_orgs, 500);
    assert_eq!(config.data_dir, Path::new("./toolgate-data"));
    assert_eq!(config.store, StoreConfig::Sqlite("./toolgate-data/toolgate.db".into()));
    assert_eq!((config.operator.token, config.secrets.master_key), (None, None));
    assert!(config.egress.allow.is_empty() && !config.egress.default_allow);
    assert_eq!(config.limits.organization, Limits::default());
    assert_eq!(config.retention, Retention::default());
    assert_eq!(config.limits.run_body_bytes, 1 << 20);
    assert_eq!(config.limits.callback_body_bytes, 1 << 20);
    assert_eq!(config.limits.provider_response_bytes, 4 << 20);
    assert_eq!(config.limits.manifest_bytes, 512_000);
    assert_eq!(config.limits.header_block_bytes, 16 << 10);
    assert_eq!((config.limits.connect_timeout_ms, config.limits.manifest_fetch_timeout_ms), (2_000, 10_000));
    assert_eq!(config.limits.run_timeout_ms, 30_000);
    assert_eq!((config.limits.unauthorized_per_second, config.limits.unauthorized_per_second_burst), (100, 200));
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn every_key_is_documented_once_and_can_be_set_by_its_variable() {
    let keys = documented_keys();
    let names: BTreeSet<_> = keys.iter().map(|key| key.key.clone()).collect();
    assert_eq!(names.len(), keys.len());
    for name in Limits::NAMES {
        assert!(names.contains(&format!("limits.{name}")), "{name}");
    }
    for key in keys {
        assert!(key.doc.len() > 10 && key.doc.ends_with(['.', '`']), "{} is not documented: {}", key.key, key.doc);
        let text = key.default.trim_matches('"');
        let config = load("", &[(&key.variable(), text)]).unwrap_or_else(|fault| panic!("{}: {fault}", key.key));
        assert_eq!(config, Config::load(None, std::iter::empty()).expect("the defaults are good"), "{}", key.key);
    }
}

#[test]
fn the_defaults_are_a_file_of_their_own() {
    let text = include_str!("../src/config.default.toml");
    assert_eq!(load(text, &[]).ok(), Config::load(None, std::iter::empty()).ok());
}

#[test]
fn the_file_goes_over_the_defaults_and_the_environment_over_both() {
    let file = "[server]\nlisten = '127.0.0.1:1'\nworkers = 3\n[limits]\ntool_per_second = 7\n[log]\nformat = 'text'";
    let environment = [
        ("TOOLGATE_SERVER__LISTEN", "[::1]:2"),
        ("TOOLGATE_LIMITS__CALLER_PER_SECOND", "9"),
        ("TOOLGATE_EGRESS__DEFAULT_ALLOW", "true"),
        ("PATH", "/bin"),
    ];
    let config = load(file, &environment).expect("a good configuration");
    assert_eq!(config.server.listen.to_string(), "[::1]:2");
    assert_eq!(config.server.workers, 3);
    assert_eq!((config.limits.organization.tool_per_second, config.limits.organization.caller_per_second), (7, 9));
    assert!(config.egress.default_allow);
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn a_list_in_the_environment_has_commas_or_is_toml() {
    for text in ["127.0.0.0/8, ::1/128", r#"["127.0.0.0/8", "::1/128"]"#] {
        let config = load("", &[("TOOLGATE_EGRESS__ALLOW", text)]).expect("a good list");
        let networks: Vec<String> = config.egress.allow.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["127.0.0.0/8", "::1/128"]);
    }
    let config = load("[egress]\nallow = ['10.0.0.0/8']", &[("TOOLGATE_EGRESS__ALLOW", "")]).expect("an empty list");
    assert!(config.egress.allow.is_empty());
    assert_one_fault("", &[("TOOLGATE_EGRESS__ALLOW", "[\"10.0.0.0/8\"")], &["TOOLGATE_EGRESS__ALLOW", "list"]);
    assert_one_fault("", &[("TOOLGATE_EGRESS__ALLOW", "[]\ndata_dir = 'x'")], &["TOOLGATE_EGRESS__ALLOW", "list"]);
}

#[test]
fn every_mistake_is_reported_at_once_with_its_origin_and_what_would_be_right() {
    let file = "data_dir = 7\nlisten = 'x'\n[server]\nlisten = 'everywhere'\nwokers = 2\n[limits]\ntool_per_second = 0";
    let environment = [("TOOLGATE_SERVER_LISTEN", "127.0.0.1:1"), ("TOOLGATE_LIMITS__MAX_TOOLS", "many")];
    let lines = faults(file, &environment);
    assert_eq!(lines.len(), 7, "{lines:#?}");
    let said = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(said(&["toolgate.toml: data_dir: ", "must be a text"]), "{lines:#?}");
    assert!(said(&["toolgate.toml: listen: ", "did you mean metrics.listen or server.listen?"]), "{lines:#?}");
    assert!(said(&["toolgate.toml: server.listen: ", "\"everywhere\"", "127.0.0.1:8080"]), "{lines:#?}");
    assert!(said(&["toolgate.toml: server.wokers: ", "did you mean server.workers?"]), "{lines:#?}");
    assert!(said(&["toolgate.toml: limits.tool_per_second: ", "between 1 and"]), "{lines:#?}");
    assert!(said(&["TOOLGATE_SERVER_LISTEN: ", "did you mean TOOLGATE_SERVER__LISTEN?"]), "{lines:#?}");
    assert!(said(&["TOOLGATE_LIMITS__MAX_TOOLS: limits.max_tools: ", "whole number"]), "{lines:#?}");
}

#[test]
fn unknown_keys_are_refused_wherever_they_hide() {
    assert_one_fault("[servre]\nworkers = 1", &[], &["servre.workers", "did you mean server.workers?"]);
    assert_one_fault("[nonsense]", &[], &["nonsense", "no such key"]);
    assert_one_fault("[server.listen]\nport = 1", &[], &["server.listen.port", "no such key"]);
    assert_one_fault("server = 1", &[], &["server", "no such key"]);
    assert_one_fault("", &[("TOOLGATE_FOO", "1")], &["TOOLGATE_FOO", "no such key"]);
    assert_one_fault("", &[("TOOLGATE_server__workers", "1")], &["did you mean TOOLGATE_SERVER__WORKERS?"]);
    assert_one_fault("", &[("TOOLGATE_SERVER", "1")], &["TOOLGATE_SERVER", "no such key"]);
    assert_one_fault("", &[("TOOLGATE_DATA_DIR", "/d/\u{fffd}")], &["TOOLGATE_DATA_DIR: data_dir: ", "UTF-8"]);
    load("[server]\n[limits]", &[]).expect("an empty section sets nothing");
}

#[test]
fn the_variables_of_the_client_are_no_keys() {
    let environment = [("TOOLGATE_CLIENT_URL", "http://x"), ("TOOLGATE_CLIENT_KEY", "y"), ("TOOLGATE_CLIENT_X", "")];
    load("", &environment).expect("the client's variables are left alone");
}

#[test]
fn a_file_that_cannot_be_read_or_parsed_is_a_fault_that_shows_no_secret() {
    let missing = Config::load(Some(Path::new("/nonexistent/toolgate.toml")), std::iter::empty());
    let text = missing.expect_err("there is no such file").to_string();
    assert!(text.starts_with("/nonexistent/toolgate.toml: the file cannot be read"), "{text}");
    let file = format!("[operator]\ntoken = \"{TOKEN}\ndata_dir = 'x'");
    let lines = faults(&file, &[]);
    assert!(lines.len() == 1 && lines[0].contains("line 2 is not TOML"), "{lines:#?}");
    assert!(!lines[0].contains("tg_op_"), "{lines:#?}");
    assert_one_fault("data_dir = 'a'\ndata_dir = 'b'", &[], &["line 2 is not TOML", "duplicate"]);
}

#[test]
fn tokens_have_the_form_of_operator_tokens_and_are_never_repeated() {
    let config = load(&format!("[operator]\ntoken = '{TOKEN}'"), &[]).expect("a good token");
    assert_eq!(config.operator.token.as_ref().map(|token| token.reveal()), Some(TOKEN));
    assert!(!format!("{config:?}").contains(TOKEN));
    let typo = TOKEN.replace("003a", "003b");
    let agent = mint(KeyKind::Agent, [1; 32]);
    for (bad, word) in [(typo.as_str(), "typo"), ("secret-word", "typo"), (agent.reveal(), "a tenant's key")] {
        for key in ["token", "previous_token"] {
            let lines = faults(&format!("[operator]\n{key} = '{bad}'"), &[]);
            assert!(lines.len() == 1 && lines[0].contains(word) && !lines[0].contains(bad), "{lines:#?}");
        }
    }
}

#[test]
fn the_master_key_is_32_bytes_and_its_variable_wins() {
    let file = format!("[secrets]\nmaster_key = '{MASTER}'\nprevious_master_key = '{OTHER_MASTER}'");
    let config = load(&file, &[]).expect("good keys");
    let master = config.secrets.master_key.clone().expect("it is set");
    assert_eq!(master.bytes(), &std::array::from_fn::<u8, 32, _>(|i| i as u8));
    assert!(!format!("{config:?}").contains("AAEC"));
    let environment = [("TOOLGATE_MASTER_KEY", OTHER_MASTER), ("TOOLGATE_SECRETS__MASTER_KEY", MASTER)];
    let config = load("", &environment).expect("good keys");
    assert_ne!(config.secrets.master_key, Some(master));
    assert_one_fault("[secrets]\nmaster_key = 'c2hvcnQ='", &[], &["secrets.master_key", "32 bytes as base64"]);
    assert_one_fault("", &[("TOOLGATE_MASTER_KEY", "short")], &["TOOLGATE_MASTER_KEY", "32 bytes as base64"]);
    assert_one_fault("", &[("TOOLGATE_MASTER_KEY", "")], &["TOOLGATE_MASTER_KEY", "32 bytes as base64"]);
}

#[test]
fn stores_and_buses_that_do_not_work_yet_are_refused_with_a_sentence_and_without_their_password() {
    for url in ["postgres://toolgate:hunter2@db/toolgate", "postgresql://toolgate:hunter2@db/toolgate"] {
        let lines = faults(&format!("[store]\nurl = '{url}'"), &[]);
        assert!(lines.len() == 1 && lines[0].contains("PostgreSQL yet"), "{lines:#?}");
        assert!(!lines[0].contains("hunter2"), "{lines:#?}");
    }
    for url in ["redis://:hunter2@cache/0", "rediss://:hunter2@cache/0"] {
        let lines = faults("", &[("TOOLGATE_BUS__URL", url)]);
        assert!(lines.len() == 1 && lines[0].contains("Redis yet"), "{lines:#?}");
        assert!(!lines[0].contains("hunter2"), "{lines:#?}");
    }
    for url in ["mysql://x", "", "sqlite::memory:", "sqlite://x"] {
        assert_one_fault(&format!("[store]\nurl = '{url}'"), &[], &["store.url"]);
    }
    assert_one_fault("[bus]\nurl = 'nats://x'", &[], &["bus.url", "one node"]);
}

#[test]
fn the_database_file_stands_in_the_data_folder_or_where_it_is_told() {
    let store = |file: &str| load(file, &[]).expect("a good store").store;
    assert_eq!(store("data_dir = '/d'"), StoreConfig::Sqlite("/d/toolgate.db".into()));
    assert_eq!(store("data_dir = '/d'\n[store]\nurl = 'sqlite:x.db'"), StoreConfig::Sqlite("/d/x.db".into()));
    assert_eq!(store("data_dir = '/d'\n[store]\nurl = 'sqlite:/e/x.db'"), StoreConfig::Sqlite("/e/x.db".into()));
    assert_one_fault("data_dir = ''", &[], &["data_dir", "folder"]);
}

#[test]
fn metrics_are_open_on_loopback_only() {
    let protected =
        |listen: &str| load("", &[("TOOLGATE_METRICS__LISTEN", listen)]).expect("a good address").metrics_protected();
    assert!(!protected("127.0.0.1:9464") && !protected("127.8.8.8:9464") && !protected("[::1]:9464"));
    assert!(protected("0.0.0.0:9464") && protected("10.0.0.1:9464") && protected("[::]:9464"));
    assert_one_fault("[metrics]\nlisten = '127.0.0.1:8080'", &[], &["metrics.listen", "server.listen already"]);
    load("[metrics]\nlisten = '127.0.0.1:0'\n[server]\nlisten = '127.0.0.1:0'", &[]).expect("two free ports");
}

#[test]
fn a_public_url_is_a_plain_base() {
    let config = load("[server]\npublic_url = 'https://tools.example.org/gate/'", &[]).expect("a good URL");
    assert_eq!(config.server.public_url_at(config.server.listen), "https://tools.example.org/gate");
    for bad in ["tools.example.org", "ftp://x", "https://x?y", "https://x#y", "https://u:p@x", "https://"] {
        assert_one_fault(&format!("[server]\npublic_url = '{bad}'"), &[], &["server.public_url", "https://"]);
    }
}

#[test]
fn networks_are_cidrs_and_the_fault_says_how_to_write_them() {
    assert_one_fault("[egress]\nallow = ['10.1.2.3/8']", &[], &["egress.allow", "10.0.0.0/8"]);
    assert_one_fault("[egress]\nallow = ['10.1.2.3']", &[], &["egress.allow", "10.1.2.3/32"]);
    assert_one_fault("[egress]\nallow = ['intranet']", &[], &["egress.allow", "\"intranet\"", "10.0.0.0/8"]);
    assert_one_fault("[egress]\nallow = [10]", &[], &["egress.allow", "text"]);
    assert_one_fault("[egress]\nallow = '10.0.0.0/8'", &[], &["egress.allow", "list"]);
    assert_one_fault("[egress]\nca_file = '/nonexistent/ca.pem'", &[], &["egress.ca_file", "/nonexistent/ca.pem"]);
}

#[test]
fn numbers_have_ranges() {
    for key in documented_keys().into_iter().filter(|key| key.default.parse::<i64>().is_ok()) {
        for bad in ["-1", "9223372036854775807"] {
            let lines = faults("", &[(&key.variable(), bad)]);
            assert!(lines.iter().any(|line| line.contains(&key.key) && line.contains("between")), "{lines:#?}");
        }
        let least = if ["server.workers", "limits.sync_interval_s", "retention.result_retention_h"]
            .contains(&key.key.as_str())
        {
            continue;
        } else {
            load("", &[(&key.variable(), "0")])
        };
        assert!(least.is_err(), "{} may not be 0", key.key);
    }
    assert_one_fault("[limits]\nrun_timeout_ms = 60001", &[], &["limits.run_timeout_ms", "60000"]);
    assert_one_fault("[limits]\nrun_timeout_ms = 1.5", &[], &["limits.run_timeout_ms", "whole number"]);
    assert_one_fault("[retention]\nresult_retention_h = 200", &[], &["retention.result_retention_h", "168"]);
}

#[test]
fn logs_have_a_known_format_and_level() {
    for good in ["info", "WARN", "info,toolgate::engine=debug", "off"] {
        load(&format!("[log]\nlevel = '{good}'"), &[]).expect("a good level");
    }
    for bad in ["", "loud", "info,", "toolgate=loud", "[x]=info"] {
        assert_one_fault(&format!("[log]\nlevel = '{bad}'"), &[], &["log.level", "info"]);
    }
    assert_one_fault("[log]\nformat = 'xml'", &[], &["log.format", "\"xml\"", "json"]);
}

#[test]
fn a_burst_follows_a_rate_that_is_set_alone() {
    let set = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Config::load(None, pairs.into_iter()).expect("good settings").limits.organization
    };
    let alone = set(&[("TOOLGATE_LIMITS__TOOL_PER_SECOND", "5")]);
    assert_eq!((alone.tool_per_second, alone.tool_per_second_burst), (5, 10));
    let both = set(&[("TOOLGATE_LIMITS__TOOL_PER_SECOND", "5"), ("TOOLGATE_LIMITS__TOOL_PER_SECOND_BURST", "7")]);
    assert_eq!((both.tool_per_second, both.tool_per_second_burst), (5, 7));
    assert_eq!(set(&[]), toolgate::domain::org::Limits::default(), "the documented defaults are the built-in ones");
}

#[test]
fn listening_everywhere_is_no_address_to_hand_out() {
    let config = Config::load(None, [("TOOLGATE_SERVER__LISTEN".to_owned(), "0.0.0.0:8080".to_owned())].into_iter());
    let server = config.expect("good settings").server;
    assert_eq!(server.public_url_at(server.listen), "http://127.0.0.1:8080");
    assert_eq!(server.public_url_at("[::]:9".parse().expect("an address")), "http://[::1]:9");
}
