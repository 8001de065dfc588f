//! Logs: structured lines on stderr.
//!
//! **Invariant:** arguments, results and keys are never logged. The types that hold them hide themselves, and below
//! `info` only toolgate's own events pass, whatever the filter says: libraries write the bytes they carry there.

use crate::config::{LogConfig, LogFormat};
use std::io;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `log.level` is no filter.
    #[error("log.level is not a filter")]
    Filter(#[source] ParseError),
    /// A subscriber is in place already.
    #[error("logging is set up already")]
    AlreadySet(#[source] TryInitError),
}

/// Sends this process's logs to stderr. Once a process.
pub fn init(config: &LogConfig) -> Result<(), TelemetryError> {
    subscriber(config, io::stderr)?.try_init().map_err(TelemetryError::AlreadySet)
}

/// The subscriber that [`init`] installs, writing wherever `writer` says.
pub fn subscriber<W>(config: &LogConfig, writer: W) -> Result<impl Subscriber + Send + Sync, TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&config.level).map_err(TelemetryError::Filter)?;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.format {
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(false);
            layer.with_writer(writer).boxed()
        }
        LogFormat::Text => tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer).boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines.with_filter(filter_fn(may_be_written))).with(filter))
}

fn may_be_written(event: &Metadata<'_>) -> bool {
    let ours = event.target() == "toolgate" || event.target().starts_with("toolgate::");
    // What a client sends that is not HTTP is no fault of this process, and anybody can send it.
    let strangers = event.target().starts_with("actix_http::h1");
    ours || (*event.level() <= Level::INFO && !strangers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::JsonText;
    use crate::domain::key::{KeyKind, mint};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics while it writes").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, level: &str, events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let config = LogConfig { format, level: level.to_owned() };
        let subscriber = subscriber(&config, move || writer.clone()).expect("a good filter");
        tracing::subscriber::with_default(subscriber, events);
        let bytes = lines.0.lock().expect("no test panics while it writes").clone();
        String::from_utf8(bytes).expect("logs are UTF-8")
    }

    #[test]
    fn a_json_line_is_one_object_with_its_fields() {
        let text = logged(LogFormat::Json, "info", || {
            let span = tracing::info_span!("run", trace_id = "4bf9");
            span.in_scope(|| tracing::info!(org = "acme", runs = 3, "sync applied"));
        });
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect("one JSON object");
        assert_eq!(line["message"], "sync applied");
        assert_eq!(line["org"], "acme");
        assert_eq!(line["runs"], 3);
        assert_eq!(line["span"]["trace_id"], "4bf9");
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn a_text_line_is_readable_and_without_colours() {
        let text = logged(LogFormat::Text, "info", || tracing::warn!(org = "acme", "sync failed"));
        assert!(text.contains("WARN") && text.contains("sync failed") && text.contains("org=\"acme\""), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_level_is_obeyed_by_part() {
        let text = logged(LogFormat::Text, "warn,toolgate::telemetry=debug", || {
            tracing::debug!("shown");
            tracing::info!(target: "toolgate::http", "hidden");
        });
        assert!(text.contains("shown") && !text.contains("hidden"), "{text}");
    }

    // BerriAI/litellm#31393
    #[test]
    fn arguments_results_and_keys_stay_out_even_at_trace() {
        let text = logged(LogFormat::Json, "trace", || {
            let arguments = JsonText::parse(r#"{"iban":"DE00"}"#).expect("JSON");
            let key = mint(KeyKind::Agent, [9; 32]);
            tracing::trace!(?arguments, ?key, "run admitted");
            tracing::debug!(target: "hyper::proto::h1", "sent {}", key.reveal());
            tracing::debug!(target: "toolgatefoo", "sent {}", key.reveal());
            tracing::info!(target: "hyper::proto::h1", "library at info");
        });
        assert!(text.contains("run admitted") && text.contains("library at info"), "{text}");
        assert!(!text.contains("DE00") && !text.contains("tg_ag_"), "{text}");
    }
}
