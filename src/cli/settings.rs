//! `toolgate config`: settings, checked before they are used.

use super::output::say;
use crate::config::{Config, ConfigFaults, documented_keys, process_environment};
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub(super) enum ConfigVerb {
    /// Say every mistake in the settings at once: exit 0 without, 1 with.
    Check {
        /// Settings beside the defaults and the environment (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print every key with its default and meaning, as a Markdown table.
    Docs,
}

/// Reads the defaults, the file and the environment of this process.
pub(super) fn load(file: Option<&Path>) -> Result<Config, ConfigFaults> {
    Config::load(file, process_environment())
}

pub(super) fn run(verb: &ConfigVerb) -> ExitCode {
    match verb {
        ConfigVerb::Check { config } => match load(config.as_deref()) {
            Ok(_) => {
                say("the settings are good\n");
                ExitCode::SUCCESS
            }
            Err(faults) => {
                eprintln!("{faults}");
                ExitCode::FAILURE
            }
        },
        ConfigVerb::Docs => {
            say(&documentation());
            ExitCode::SUCCESS
        }
    }
}

/// The table of all keys, as the README has it.
fn documentation() -> String {
    let mut table = "| Key | Default | Meaning |\n|---|---|---|\n".to_owned();
    for key in documented_keys() {
        let doc = key.doc.replace('|', "\\|");
        table.push_str(&format!("| `{}` | `{}` | {doc} |\n", key.key, key.default));
    }
    table
}
