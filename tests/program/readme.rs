//! The README keeps its word: its commands do what it says, and its tables are those of the program.

use super::process::{PROGRAM, ProcessGroup, command, free_port};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use toolgate::config::documented_keys;
use toolgate::domain::error_code::ErrorCode;
use toolgate::domain::run::RunStatus;

const README: &str = include_str!("../../README.md");

/// The contents of all fenced blocks with this info string, in order.
fn blocks(info: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in README.lines() {
        open = match (open, line.strip_prefix("```")) {
            (None, Some(found)) => Some((found == info, String::new())),
            (Some((wanted, text)), Some(_)) => {
                if wanted {
                    blocks.push(text);
                }
                None
            }
            (Some((wanted, text)), None) => Some((wanted, text + line + "\n")),
            (None, None) => None,
        };
    }
    assert!(open.is_none(), "a fence is not closed");
    blocks
}

/// The rows of the table under this heading, cell by cell, without its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Runs a script as a reader would, who has just cloned the repository; answers what it printed.
fn run_as_reader(script: &str, home: &Path) -> String {
    let [api, metrics, provider] = [(); 3].map(|()| free_port().to_string());
    let folder = Path::new(PROGRAM).parent().expect("a program has a folder");
    let script = script
        .replace("cargo build --release", "true")
        .replace("$PWD/target/release", &folder.to_string_lossy())
        .replace("8080", &api)
        .replace("9464", &metrics)
        .replace("9000", &provider);
    // A file and no pipe: what the script leaves running would keep a pipe open.
    let printed = home.join("printed.txt");
    let output = File::create(&printed).expect("the folder is writable");
    let mut child = command("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("HOME", home)
        .env("TOOLGATE_SERVER__LISTEN", format!("127.0.0.1:{api}"))
        .env("TOOLGATE_METRICS__LISTEN", format!("127.0.0.1:{metrics}"))
        .env("TOOLGATE_CLIENT_URL", format!("http://127.0.0.1:{api}"))
        .current_dir(home)
        .process_group(0)
        .stdin(Stdio::null())
        .stderr(output.try_clone().expect("a file has two ends"))
        .stdout(output)
        .spawn()
        .expect("bash is there");
    let _group = ProcessGroup(child.id());
    let status = child.wait().expect("bash ends");
    let text = fs::read_to_string(&printed).expect("text was printed");
    assert!(status.success(), "the commands fail ({status}):\n{text}");
    text
}

#[test]
fn the_five_minute_path_ends_with_a_working_tool() {
    let commands = blocks("sh test");
    assert!(commands.len() > 4, "the path has several steps");
    let home = tempfile::tempdir().expect("a temporary folder");
    let printed = run_as_reader(&commands.concat(), home.path());
    assert_prints_in_order(&printed, &blocks("text expect"));
}

/// The sections after the first tool go on with its gateway, before it is ended.
#[test]
fn what_an_administrator_does_next_works_as_written() {
    let mut path = blocks("sh test");
    let end = path.pop().expect("the path ends its gateway");
    let later = blocks("sh later");
    assert!(later.len() > 3, "there is more to do");
    let home = tempfile::tempdir().expect("a temporary folder");
    let printed = run_as_reader(&[path.concat(), later.concat(), end].concat(), home.path());
    assert_prints_in_order(&printed, &blocks("text later"));
    let refused = printed.matches("urn:toolgate:problem:").count();
    assert_eq!(refused, 1, "only the other call under the same key is refused:\n{printed}");
}

fn assert_prints_in_order(printed: &str, expected: &[String]) {
    assert!(!expected.is_empty(), "the README promises something");
    let mut rest = printed;
    for line in expected.iter().flat_map(|block| block.lines()) {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("{line:?} is not printed, or too early:\n{printed}")
        };
        rest = after;
    }
}

#[test]
fn the_settings_are_those_of_the_program() {
    let documented: Vec<Vec<String>> = documented_keys()
        .into_iter()
        .map(|key| vec![format!("`{}`", key.key), format!("`{}`", key.default), key.doc.replace('|', "\\|")])
        .collect();
    assert_eq!(table("Settings"), documented, "print the table with `toolgate config docs`");
}

#[test]
fn the_error_codes_are_those_of_the_program() {
    // This one is not used.
    let known = |code: &ErrorCode| *code != ErrorCode::ManifestRefused;
    let expected: Vec<(String, String)> = ErrorCode::ALL
        .iter()
        .filter(|code| known(code))
        .map(|code| (format!("`{}`", code.as_str()), code.status().to_string()))
        .collect();
    let written: Vec<(String, String)> =
        table("Errors").iter().map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
    assert_eq!(written, expected);
}

#[test]
fn the_run_statuses_are_those_of_the_program() {
    let mut expected: Vec<String> = RunStatus::ALL.iter().map(|status| format!("`{}`", status.as_str())).collect();
    expected.push("`confirmation_required`".to_owned());
    // One word stands for two states of the program.
    let mut seen = std::collections::BTreeSet::new();
    expected.retain(|status| seen.insert(status.clone()));
    let mut written: Vec<String> = table("What a run answers").iter().map(|row| row[0].to_owned()).collect();
    expected.sort();
    written.sort();
    assert_eq!(written, expected);
}

#[test]
fn the_files_it_points_to_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = README.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let mut files = 0;
    for target in links.filter(|target| !target.contains("://") && !target.starts_with('#')) {
        assert!(root.join(target).exists(), "{target} is not there");
        files += 1;
    }
    assert!(files > 3, "it points to files");
}
