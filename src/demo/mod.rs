//! `toolgate demo`: a gateway and one provider of each dialect in one process, and a guided tour of real calls.
//!
//! The providers ([`topology_provider`], [`agent_provider`], [`median_provider`], [`mcp_provider`]) speak real HTTP on loopback and check what they are sent;
//! tests start them too. Nothing here is used by `toolgate serve`.

pub mod agent_provider;
pub mod local_server;
pub mod mcp_provider;
mod mcp_steps;
pub mod median_provider;
mod mutation_steps;
mod page;
pub mod shop;
mod steps;
pub mod topology_provider;
mod tour;

use crate::adapters::clock::SystemClock;
use crate::adapters::transport::{SimpleClient, TransportSetupError};
use crate::app::{Gateway, StartFault};
use crate::config::{Config, ConfigFaults};
use agent_provider::{AgentProvider, AgentProviderOptions};
use mcp_provider::{McpOptions, McpProvider};
use median_provider::{MedianOptions, MedianProvider};
use page::Page;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use topology_provider::{TopologyOptions, TopologyProvider};
use tour::{Stage, Tour, TourKeys};
use uuid::Uuid;

/// Why the demo cannot be shown.
#[derive(Debug, thiserror::Error)]
enum DemoFault {
    /// No folder for the gateway's data.
    #[error("no temporary folder can be made")]
    Folder(#[source] io::Error),
    /// The built-in settings are refused.
    #[error("the demo's own settings are refused")]
    Config(#[source] ConfigFaults),
    /// The gateway does not start.
    #[error("the gateway does not start")]
    Gateway(#[source] StartFault),
    /// A provider does not start.
    #[error("a provider does not start")]
    Provider(#[source] io::Error),
    /// The client cannot be set up.
    #[error("the client cannot be set up")]
    Client(#[source] TransportSetupError),
}

/// Runs the demo. With `once` it ends after the tour, and fails unless every step did what it should.
pub fn run(once: bool) -> ExitCode {
    actix::System::new().block_on(async {
        match show(once).await {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(fault) => {
                let mut line = fault.to_string();
                let mut cause = std::error::Error::source(&fault);
                while let Some(source) = cause {
                    line = format!("{line}: {source}");
                    cause = source.source();
                }
                eprintln!("toolgate demo: {line}");
                ExitCode::FAILURE
            }
        }
    })
}

async fn show(once: bool) -> Result<bool, DemoFault> {
    let folder = TemporaryFolder::new().map_err(DemoFault::Folder)?;
    let config = settings(&folder).map_err(DemoFault::Config)?;
    let gateway = Gateway::start(config, Arc::new(SystemClock::new())).await.map_err(DemoFault::Gateway)?;
    let stage = Stage {
        gateway_url: gateway.url().to_owned(),
        operator_token: gateway.operator_token().reveal().to_owned(),
        topology: TopologyProvider::start(TopologyOptions::default()).map_err(DemoFault::Provider)?,
        orders: AgentProvider::start(AgentProviderOptions::default()).map_err(DemoFault::Provider)?,
        median: MedianProvider::start(MedianOptions::default()).map_err(DemoFault::Provider)?,
        mcp: McpProvider::start(McpOptions::default()).map_err(DemoFault::Provider)?,
        client: SimpleClient::new(None, Duration::from_secs(75)).map_err(DemoFault::Client)?,
    };
    let mut page = Page::stdout();
    introduce(&mut page, &stage, gateway.metrics_url(), once);
    let (passed, keys) = Tour::new(&stage, &mut page).walk().await;
    if !once {
        go_on(&mut page, &stage, gateway.metrics_url(), &keys);
        wait_for_the_end().await;
    }
    stage.topology.stop().await;
    stage.orders.stop().await;
    stage.median.stop().await;
    stage.mcp.stop().await;
    gateway.stop().await;
    Ok(passed)
}

/// Free ports, so that the demo also runs beside a toolgate; loopback as the network providers may have.
fn settings(folder: &TemporaryFolder) -> Result<Config, ConfigFaults> {
    let data_dir = folder.path.to_string_lossy().into_owned();
    let settings = [
        ("TOOLGATE_SERVER__LISTEN", "127.0.0.1:0"),
        ("TOOLGATE_METRICS__LISTEN", "127.0.0.1:0"),
        ("TOOLGATE_DATA_DIR", data_dir.as_str()),
        ("TOOLGATE_EGRESS__ALLOW", "127.0.0.0/8"),
        ("TOOLGATE_EGRESS__DEFAULT_ALLOW", "true"),
    ];
    Config::load(None, settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())))
}

fn introduce(page: &mut Page, stage: &Stage, metrics_url: &str, once: bool) {
    page.line("toolgate demo");
    page.prose(
        "One gateway and four providers run in this process and talk real HTTP on loopback. The tour below is a small \
         web shop that lets an AI agent use its tools. Each step shows a curl command, what came back, and whether \
         that is what should have come back.",
    );
    if !once {
        page.prose(
            "Everything keeps running afterwards, so that you can repeat each command as it stands. Some say something \
             else the second time: a name is taken, an approval is decided, a key is made once more.",
        );
    }
    page.gap();
    page.line(&format!("   gateway            {}", stage.gateway_url));
    page.line(&format!("   metrics            {metrics_url}"));
    page.line(&format!("   topology provider  {}   (automations; answers queries later)", stage.topology.url()));
    page.line(&format!("   agent-provider     {}   (order desk; evidence and receipts)", stage.orders.url()));
    page.line(&format!("   median provider    {}   (customer service; answers at once)", stage.median.url()));
    page.line(&format!("   MCP server         {}   (catalogue; speaks MCP)", stage.mcp.url()));
}

fn go_on(page: &mut Page, stage: &Stage, metrics_url: &str, keys: &TourKeys) {
    page.gap();
    page.line("Everything is still running. Press Ctrl-C to end it; its data goes with it.");
    page.gap();
    page.line(&format!("   read the APIs     {}/docs", stage.gateway_url));
    page.line(&format!("   read the metrics  {metrics_url}"));
    page.line(&format!("   operator token    {}", stage.operator_token));
    page.line(&format!("   workspace key     {}", keys.workspace));
    page.line(&format!("   agent key         {}", keys.agent));
    page.gap();
    page.line("   The same from the command line, in another terminal:");
    let program = std::env::args().next().unwrap_or_else(|| "toolgate".to_owned());
    page.command(&format!(
        "export TOOLGATE_CLIENT_URL={}\nexport TOOLGATE_CLIENT_KEY={}\n{program} endpoint list\n{program} tool list\n\
         {program} run list\n{program} operation list\n{program} approval list",
        stage.gateway_url, keys.workspace
    ));
}

async fn wait_for_the_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("a handler for SIGTERM can be installed");
    let mut interrupt = signal(SignalKind::interrupt()).expect("a handler for SIGINT can be installed");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// A folder of our own that goes when the demo ends.
struct TemporaryFolder {
    path: PathBuf,
}

impl TemporaryFolder {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("toolgate-demo-{}", Uuid::now_v7().simple()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary things; there is nobody left to tell.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
