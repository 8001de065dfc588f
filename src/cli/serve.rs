//! `toolgate serve`.

use crate::adapters::clock::SystemClock;
use crate::app::Gateway;
use crate::config::Config;
use crate::telemetry;
use std::process::ExitCode;
use std::sync::Arc;

/// Serves until SIGTERM or SIGINT.
pub(super) fn serve(config: Config) -> ExitCode {
    if let Err(error) = telemetry::init(&config.log) {
        report(&error);
        return ExitCode::FAILURE;
    }
    actix::System::new().block_on(async {
        let gateway = match Gateway::start(config, Arc::new(SystemClock::new())).await {
            Ok(gateway) => gateway,
            Err(fault) => {
                report(&fault);
                return ExitCode::FAILURE;
            }
        };
        announce(&gateway);
        wait_for_signal().await;
        tracing::info!("stopping; running calls finish first");
        if !gateway.stop().await {
            tracing::warn!("some calls were cut off; their outcome is looked for after the next start");
        }
        ExitCode::SUCCESS
    })
}

fn announce(gateway: &Gateway) {
    tracing::info!(url = gateway.url(), metrics = gateway.metrics_url(), "toolgate is serving");
    if gateway.operator_token_is_new() {
        eprintln!("operator token (shown once, kept in the data folder): {}", gateway.operator_token().reveal());
    }
}

async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("a handler for SIGTERM can be installed");
    let mut interrupt = signal(SignalKind::interrupt()).expect("a handler for SIGINT can be installed");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// An error with all its causes on one line.
fn report(error: &dyn std::error::Error) {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        line = format!("{line}: {source}");
        cause = source.source();
    }
    eprintln!("toolgate: {line}");
}
