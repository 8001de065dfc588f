//! `toolgate check`: a provider against its dialect.

use super::fault::CliFault;
use super::input::{contents, secret};
use super::output::{printable, say};
use crate::check::{self, CallbackOptions, CheckFault, CheckOptions, Line, SampleCall, Summary};
use crate::domain::endpoint::EndpointAuth;
use crate::domain::json::JsonText;
use crate::domain::secret::Secret;
use crate::domain::tool::Dialect;
use clap::Args;
use std::error::Error as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub(super) struct CheckArgs {
    /// Where the provider is, as an endpoint is registered.
    url: String,
    /// The protocol it speaks: topology, agent-provider, median or mcp.
    #[arg(long)]
    dialect: String,
    #[command(flatten)]
    auth: CheckAuth,
    /// Call this tool too, under the provider's own name for it.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Its arguments: a JSON object, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON|@FILE|-", requires = "tool")]
    args: Option<String>,
    /// Who is behind the call.
    #[arg(long, value_name = "IDENTITY", requires = "tool")]
    caller: Option<String>,
    /// Call the tool even if that changes something.
    #[arg(long)]
    allow_mutations: bool,
    #[command(flatten)]
    callback: CallbackArgs,
    /// Wait this long for each answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout_s: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// What the provider expects; an MCP server may expect nothing. Each secret may be given as @FILE or - to keep it out of the process list.
#[derive(Args)]
struct CheckAuth {
    /// Topology, mcp: the header that holds the secret, such as X-Auth=SECRET (or X-Auth=@FILE, or X-Auth=-).
    #[arg(long, value_name = "NAME=SECRET")]
    header: Option<String>,
    /// Agent-provider, mcp: the bearer token (or @FILE, or -).
    #[arg(long, value_name = "TOKEN")]
    bearer: Option<String>,
    /// Median: the secret requests are signed with (or @FILE, or -).
    #[arg(long, value_name = "SECRET")]
    signing_secret: Option<String>,
    /// Median: the key that secret is derived from (or @FILE, or -).
    #[arg(long, value_name = "KEY")]
    median_key: Option<String>,
}

/// Topology: the late answer of a query.
#[derive(Args)]
struct CallbackArgs {
    /// Listen here for the late answer of a query, such as 127.0.0.1:9100.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// The address under which the provider reaches that, when it is another.
    #[arg(long, value_name = "URL", requires = "listen")]
    callback_url: Option<String>,
    /// The secret callbacks are signed with, whsec_… (or @FILE, or -).
    #[arg(long, value_name = "SECRET", requires = "listen")]
    callback_secret: Option<String>,
    /// Wait this long for the late answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait_s: u64,
}

impl CheckAuth {
    fn read(&self, dialect: Dialect) -> Result<EndpointAuth, CliFault> {
        let bad = |sentence: &str| CliFault::BadInput(sentence.to_owned());
        let read = |option: &Option<String>| option.as_deref().map(secret).transpose();
        let (bearer, signing_secret) = (read(&self.bearer)?, read(&self.signing_secret)?);
        let given = (self.header.as_deref(), bearer, signing_secret, read(&self.median_key)?);
        match (dialect, given) {
            (Dialect::Topology, (Some(header), None, None, None)) => named_header(header),
            (Dialect::Topology, _) => Err(bad("topology wants --header NAME=SECRET, and no other credentials")),
            (Dialect::AgentProvider, (None, Some(token), None, None)) => Ok(EndpointAuth::Bearer(Secret::new(token))),
            (Dialect::AgentProvider, _) => Err(bad("agent-provider wants --bearer, and no other credentials")),
            (Dialect::Median, (None, None, Some(value), None)) => Ok(EndpointAuth::SigningSecret(Secret::new(value))),
            (Dialect::Median, (None, None, None, Some(key))) => Ok(EndpointAuth::MedianKey(Secret::new(key))),
            (Dialect::Mcp, (None, None, None, None)) => Ok(EndpointAuth::None),
            (Dialect::Mcp, (None, Some(token), None, None)) => Ok(EndpointAuth::Bearer(Secret::new(token))),
            (Dialect::Mcp, (Some(header), None, None, None)) => named_header(header),
            (Dialect::Mcp, _) => Err(bad("mcp wants --bearer, --header NAME=SECRET, or no credentials")),
            (Dialect::Median, _) => {
                Err(bad("median wants either --signing-secret or --median-key, and no other credentials"))
            }
        }
    }
}

fn named_header(text: &str) -> Result<EndpointAuth, CliFault> {
    let bad = || CliFault::BadInput("write --header as NAME=SECRET".to_owned());
    let (name, value) = text.split_once('=').ok_or_else(bad)?;
    Ok(EndpointAuth::Header { name: name.trim().to_owned(), value: Secret::new(secret(value)?) })
}

impl CheckArgs {
    fn options(&self) -> Result<CheckOptions, CliFault> {
        let unknown = || CliFault::BadInput(format!("{} is no dialect that can be checked", self.dialect));
        let dialect = Dialect::parse(&self.dialect).ok_or_else(unknown)?;
        let call = self.tool.as_ref().map(|tool| {
            let arguments = contents(self.args.as_deref().unwrap_or("{}"))?;
            let arguments = JsonText::parse(arguments.trim())
                .map_err(|error| CliFault::BadInput(format!("--args is not JSON: {error}")))?;
            Ok(SampleCall { tool: tool.clone(), arguments, caller: self.caller.clone() })
        });
        let callback = self.callback.listen.map(|listen| {
            let secret = self.callback.callback_secret.as_deref().map(secret).transpose()?;
            Ok(CallbackOptions {
                listen,
                public_url: self.callback.callback_url.clone(),
                secret: secret.map(Secret::new),
                wait: Duration::from_secs(self.callback.wait_s),
            })
        });
        Ok(CheckOptions {
            dialect,
            base_url: self.url.clone(),
            auth: self.auth.read(dialect)?,
            call: call.transpose()?,
            allow_mutations: self.allow_mutations,
            callback: callback.transpose()?,
            timeout: Duration::from_secs(self.timeout_s),
        })
    }
}

/// Checks, and prints each line as soon as it is known: 0 when no rule is broken, else 1.
pub(super) fn run(args: &CheckArgs) -> ExitCode {
    let options = match args.options() {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("{}", fault.report());
            return fault.exit_code();
        }
    };
    let mut print = |line: &Line| {
        let text = if args.json { line.to_json().to_string() } else { printable(&line.to_string()) };
        say(&format!("{text}\n"));
    };
    match actix::System::new().block_on(check::run(&options, &mut print)) {
        Ok(summary) => {
            if !args.json {
                let Summary { ok, failed, skipped } = &summary;
                say(&format!("{ok} ok, {failed} failed, {skipped} skipped\n"));
            }
            if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(fault) => {
            eprintln!("toolgate: {}", sentence(&fault));
            ExitCode::from(2)
        }
    }
}

fn sentence(fault: &CheckFault) -> String {
    match fault.source() {
        Some(source) => format!("{fault}: {source}"),
        None => fault.to_string(),
    }
}
