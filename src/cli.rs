//! The command line: the server, the demo, the check of a provider, and a client for both APIs.
//!
//! Exit codes: 0 done, 1 it failed, 2 the command line is not right.

mod approval;
mod audit;
mod check;
mod client;
mod endpoint;
mod fault;
mod group;
mod input;
mod key;
mod operation;
mod org;
mod output;
mod run;
mod serve;
mod settings;
mod tool;

use crate::demo;
use clap::{Args, Parser, Subcommand};
use client::{Client, Connection};
use fault::CliFault;
use std::path::PathBuf;
use std::process::ExitCode;

/// The gateway between AI agents and the tools that organizations own.
#[derive(Parser)]
#[command(name = "toolgate", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM or Ctrl-C.
    Serve {
        /// Settings beside the defaults and the environment (TOML).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Show a gateway with four providers at work, on loopback, with data that is thrown away.
    Demo {
        /// End after the tour: 0 when every step did what it should, else 1.
        #[arg(long)]
        once: bool,
    },
    /// Test a provider against its dialect: one line a rule; 0 when none is broken, else 1.
    Check(check::CheckArgs),
    /// Check or explain the settings.
    Config {
        #[command(subcommand)]
        verb: settings::ConfigVerb,
    },
    /// Organizations (operator token), and an organization's own settings (workspace key).
    Org(ClientCommand<org::OrgVerb>),
    /// Endpoints: the providers of an organization (workspace key).
    Endpoint(ClientCommand<endpoint::EndpointVerb>),
    /// Tools of an organization (workspace key), and what an agent sees of them (agent key).
    Tool(ClientCommand<tool::ToolVerb>),
    /// Groups: which tools a key may use (workspace key).
    Group(ClientCommand<group::GroupVerb>),
    /// Agent keys, or workspace keys with --workspace (workspace key).
    Key(ClientCommand<key::KeyVerb>),
    /// Runs: their records (workspace key), or calling a tool (agent key).
    Run(ClientCommand<run::RunVerb>),
    /// Runs that wait for a person's decision (workspace key).
    Approval(ClientCommand<approval::ApprovalVerb>),
    /// Mutations at providers that keep receipts (workspace key).
    Operation(ClientCommand<operation::OperationVerb>),
    /// Messages to the organization's webhook (workspace key).
    Delivery(ClientCommand<operation::DeliveryVerb>),
    /// Who changed what (workspace key).
    Audit(ClientCommand<audit::AuditVerb>),
}

/// A command that talks to a running gateway.
#[derive(Args)]
struct ClientCommand<V: Subcommand> {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: V,
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { config } => match settings::load(config.as_deref()) {
            Ok(config) => serve::serve(config),
            Err(faults) => {
                eprintln!("{faults}");
                ExitCode::FAILURE
            }
        },
        Command::Demo { once } => demo::run(once),
        Command::Check(args) => check::run(&args),
        Command::Config { verb } => settings::run(&verb),
        Command::Org(command) => talk(&command.connection, async |client| org::run(client, command.verb).await),
        Command::Endpoint(command) => {
            talk(&command.connection, async |client| endpoint::run(client, command.verb).await)
        }
        Command::Tool(command) => talk(&command.connection, async |client| tool::run(client, command.verb).await),
        Command::Group(command) => talk(&command.connection, async |client| group::run(client, command.verb).await),
        Command::Key(command) => talk(&command.connection, async |client| key::run(client, command.verb).await),
        Command::Run(command) => talk(&command.connection, async |client| run::run(client, command.verb).await),
        Command::Approval(command) => {
            talk(&command.connection, async |client| approval::run(client, command.verb).await)
        }
        Command::Operation(command) => {
            talk(&command.connection, async |client| operation::operations(client, command.verb).await)
        }
        Command::Delivery(command) => {
            talk(&command.connection, async |client| operation::deliveries(client, command.verb).await)
        }
        Command::Audit(command) => talk(&command.connection, async |client| audit::run(client, command.verb).await),
    }
}

/// Lets a command talk to the gateway, and tells how that ended.
fn talk(connection: &Connection, command: impl AsyncFnOnce(&Client) -> Result<(), CliFault>) -> ExitCode {
    let ended = actix::System::new().block_on(async { command(&Client::new(connection)?).await });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{}", fault.report());
            fault.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn connection_options_stand_before_or_after_the_verb() {
        for line in ["toolgate tool --url http://h:1 list", "toolgate tool list --url http://h:1"] {
            let cli = Cli::try_parse_from(line.split(' ')).expect("a good command line");
            let Command::Tool(command) = cli.command else { panic!("the tool command") };
            assert_eq!(command.connection.url, "http://h:1");
        }
    }

    #[test]
    fn what_a_body_needs_may_be_left_to_the_body() {
        assert!(Cli::try_parse_from(["toolgate", "endpoint", "create", "--body", "{}"]).is_ok());
        assert!(Cli::try_parse_from(["toolgate", "endpoint", "create"]).is_err());
        assert!(Cli::try_parse_from(["toolgate", "run", "call", "--args", "{}"]).is_err());
    }
}
