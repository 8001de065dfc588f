//! From the flat table of values to typed, checked ones.

use super::fault::{ConfigFault, Origin};
use super::layers::Layers;
use super::ranges::RANGES;
use super::{
    BusConfig, Config, EgressConfig, LimitsConfig, LogConfig, LogFormat, MASTER_KEY_VARIABLE, MasterKey, MetricsConfig,
    OperatorConfig, SecretsConfig, ServerConfig, StoreConfig,
};
use crate::domain::key::{KeyKind, recognise};
use crate::domain::org::{LimitOverrides, Limits, Retention};
use crate::domain::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use toml::Value;
use url::Url;

/// File of the database in `data_dir`.
const SQLITE_FILE: &str = "toolgate.db";

/// Values longer than this are not repeated in a fault.
const MAX_ECHO: usize = 64;

/// Reads every key. What is wrong adds a fault and reads as the default, so that the rest is looked at too; the result
/// counts only when there is no fault.
pub(super) fn config(layers: &Layers, faults: &mut Vec<ConfigFault>) -> Config {
    let mut reader = Reader { layers, faults };
    let data_dir = reader.data_dir();
    let server = reader.server();
    let metrics = reader.metrics(&server);
    Config {
        store: reader.store(&data_dir),
        bus: reader.bus(),
        operator: OperatorConfig {
            token: reader.operator_token("operator.token"),
            previous_token: reader.operator_token("operator.previous_token"),
        },
        secrets: reader.secrets(),
        egress: reader.egress(),
        limits: reader.limits(),
        retention: reader.retention(),
        log: reader.log(),
        server,
        metrics,
        data_dir,
    }
}

struct Reader<'a> {
    layers: &'a Layers,
    faults: &'a mut Vec<ConfigFault>,
}

impl Reader<'_> {
    fn value(&self, key: &str) -> &Value {
        &self.layers.settings.get(key).expect("every key that is read stands in the defaults").value
    }

    fn text(&self, key: &str) -> String {
        self.value(key).as_str().expect("layers have the types of the defaults").to_owned()
    }

    /// The text unless it is empty, which is "not set".
    fn optional_text(&self, key: &str) -> Option<String> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    fn fault(&mut self, key: &str, message: impl Into<String>) {
        let origin = self.layers.settings.get(key).map_or(&Origin::Default, |setting| &setting.origin).to_string();
        self.faults.push(ConfigFault { origin, key: key.to_owned(), message: message.into() });
    }

    fn number(&mut self, key: &str) -> u64 {
        let value = self.value(key).as_integer().expect("layers have the types of the defaults");
        let (_, least, most) =
            RANGES.iter().find(|(name, ..)| *name == key).expect("a test holds that every number has its range");
        match u64::try_from(value) {
            Ok(number) if (*least..=*most).contains(&number) => number,
            _ => {
                self.fault(key, format!("{value} is out of range; it must be between {least} and {most}"));
                *least
            }
        }
    }

    fn count(&mut self, key: &str) -> usize {
        usize::try_from(self.number(key)).unwrap_or(usize::MAX)
    }

    fn rate(&mut self, key: &str) -> u32 {
        u32::try_from(self.number(key)).unwrap_or(u32::MAX)
    }

    fn address(&mut self, key: &str, fallback: SocketAddr) -> SocketAddr {
        let text = self.text(key);
        text.parse().unwrap_or_else(|_| {
            self.fault(key, format!("{} is no address with a port, such as {fallback} or [::1]:8080", shown(&text)));
            fallback
        })
    }

    fn data_dir(&mut self) -> PathBuf {
        let text = self.text("data_dir");
        if text.is_empty() {
            self.fault("data_dir", "this must name a folder, such as ./toolgate-data");
        }
        PathBuf::from(text)
    }

    fn server(&mut self) -> ServerConfig {
        let listen = self.address("server.listen", SocketAddr::from(([127, 0, 0, 1], 8080)));
        let workers = match self.count("server.workers") {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        ServerConfig { listen, public_url: self.public_url(), workers }
    }

    fn public_url(&mut self) -> Option<String> {
        let text = self.optional_text("server.public_url")?;
        let good = Url::parse(&text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        });
        if !good {
            let message = "this must be an http or https URL without credentials, query or fragment, such as \
                           https://tools.example.org";
            self.fault("server.public_url", message);
        }
        Some(text.trim_end_matches('/').to_owned())
    }

    fn metrics(&mut self, server: &ServerConfig) -> MetricsConfig {
        let listen = self.address("metrics.listen", SocketAddr::from(([127, 0, 0, 1], 9464)));
        if listen.port() != 0 && listen == server.listen {
            self.fault("metrics.listen", format!("{listen} is server.listen already; give it another port"));
        }
        MetricsConfig { listen, max_orgs: self.count("metrics.max_orgs") }
    }

    fn store(&mut self, data_dir: &Path) -> StoreConfig {
        let key = "store.url";
        let url = self.text(key);
        let mut file = SQLITE_FILE;
        // The value is not repeated: such URLs hold passwords.
        if let Some(rest) = url.strip_prefix("sqlite:") {
            match rest {
                "" => {}
                ":memory:" => self.fault(key, "a database in memory would lose what must last; name a file"),
                rest if rest.starts_with("//") => {
                    self.fault(key, "a file is written without slashes before it, such as sqlite:/var/lib/toolgate.db");
                }
                rest => file = rest,
            }
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            self.fault(key, "toolgate cannot keep its data in PostgreSQL yet; use sqlite: until it can");
        } else {
            self.fault(key, "this must be sqlite: (toolgate.db in data_dir) or sqlite:FILE");
        }
        StoreConfig::Sqlite(data_dir.join(file))
    }

    fn bus(&mut self) -> BusConfig {
        let key = "bus.url";
        if let Some(url) = self.optional_text(key) {
            let message = if url.starts_with("redis://") || url.starts_with("rediss://") {
                "toolgate cannot join nodes through Redis yet; leave this empty until it can"
            } else {
                "this must be empty: toolgate runs as one node"
            };
            self.fault(key, message);
        }
        BusConfig::Local
    }

    fn operator_token(&mut self, key: &str) -> Option<Secret> {
        let text = self.optional_text(key)?;
        match recognise(&text) {
            Some((KeyKind::Operator, _)) => {}
            Some((KeyKind::Workspace | KeyKind::Agent, _)) => {
                self.fault(key, "this is a tenant's key; an operator token begins with tg_op_");
            }
            None => self.fault(
                key,
                "this is no operator token, or has a typo: tg_op_, 43 digits and letters, and 6 more that check them; \
                 left empty, one is made on first start",
            ),
        }
        Some(Secret::new(text))
    }

    fn secrets(&mut self) -> SecretsConfig {
        let key = "secrets.master_key";
        let configured = self.optional_text(key).map(|text| self.master_key(key, &text));
        let variable = self.layers.master_key.as_deref().map(|text| {
            decode_master_key(text).unwrap_or_else(|| {
                let message = MASTER_KEY_FORM.to_owned();
                self.faults.push(ConfigFault { origin: MASTER_KEY_VARIABLE.to_owned(), key: String::new(), message });
                MasterKey([0; 32])
            })
        });
        let previous = "secrets.previous_master_key";
        let previous_master_key = self.optional_text(previous).map(|text| self.master_key(previous, &text));
        SecretsConfig { master_key: variable.or(configured), previous_master_key }
    }

    fn master_key(&mut self, key: &str, text: &str) -> MasterKey {
        decode_master_key(text).unwrap_or_else(|| {
            self.fault(key, MASTER_KEY_FORM);
            MasterKey([0; 32])
        })
    }

    fn egress(&mut self) -> EgressConfig {
        let default_allow =
            self.value("egress.default_allow").as_bool().expect("layers have the types of the defaults");
        let ca_file = self.optional_text("egress.ca_file").map(PathBuf::from);
        if let Some(path) = ca_file.as_deref().filter(|path| !path.is_file()) {
            self.fault("egress.ca_file", format!("there is no file {}", path.display()));
        }
        EgressConfig { allow: self.networks("egress.allow"), default_allow, ca_file }
    }

    fn networks(&mut self, key: &str) -> Vec<IpNet> {
        let items = self.value(key).as_array().expect("layers have the types of the defaults").clone();
        let mut networks = Vec::with_capacity(items.len());
        for item in items {
            match item.as_str().ok_or_else(|| "every item must be a text".to_owned()).and_then(network) {
                Ok(network) => networks.push(network),
                Err(message) => self.fault(key, message),
            }
        }
        networks
    }

    fn limits(&mut self) -> LimitsConfig {
        let mut set = LimitOverrides::default();
        for name in Limits::NAMES {
            let key = format!("limits.{name}");
            let value = self.number(&key);
            let is_default = self.layers.settings.get(&key).is_none_or(|setting| setting.origin == Origin::Default);
            set.set(name, (!is_default).then_some(value));
        }
        LimitsConfig {
            organization: Limits::default().with(&set),
            run_body_bytes: self.count("limits.run_body_bytes"),
            callback_body_bytes: self.count("limits.callback_body_bytes"),
            api_body_bytes: self.count("limits.api_body_bytes"),
            provider_response_bytes: self.count("limits.provider_response_bytes"),
            manifest_bytes: self.count("limits.manifest_bytes"),
            header_block_bytes: self.count("limits.header_block_bytes"),
            connect_timeout_ms: self.number("limits.connect_timeout_ms"),
            manifest_fetch_timeout_ms: self.number("limits.manifest_fetch_timeout_ms"),
            run_timeout_ms: self.number("limits.run_timeout_ms"),
            callers_tracked: self.count("limits.callers_tracked"),
            conversations_tracked: self.count("limits.conversations_tracked"),
            listen_streams: self.count("limits.listen_streams"),
            unauthorized_per_second: self.rate("limits.unauthorized_per_second"),
            unauthorized_per_second_burst: self.rate("limits.unauthorized_per_second_burst"),
            mailbox_capacity: self.count("limits.mailbox_capacity"),
        }
    }

    fn retention(&mut self) -> Retention {
        let run_retention_h = self.number("retention.run_retention_h");
        let result_retention_h = self.number("retention.result_retention_h");
        if result_retention_h > run_retention_h {
            let message =
                format!("{result_retention_h} is longer than run_retention_h ({run_retention_h}) keeps the run");
            self.fault("retention.result_retention_h", message);
        }
        Retention { run_retention_h, result_retention_h }
    }

    fn log(&mut self) -> LogConfig {
        let format = match self.text("log.format").as_str() {
            "json" => LogFormat::Json,
            "text" => LogFormat::Text,
            other => {
                self.fault("log.format", format!("{} is neither json nor text", shown(other)));
                LogFormat::Json
            }
        };
        let level = self.text("log.level");
        if !level.split(',').all(is_log_directive) {
            let message = "this must be error, warn, info, debug, trace or off, or several such as \
                           info,toolgate::engine=debug";
            self.fault("log.level", message);
        }
        LogConfig { format, level }
    }
}

const MASTER_KEY_FORM: &str = "this must be 32 bytes as base64, such as `openssl rand -base64 32` prints";

fn decode_master_key(text: &str) -> Option<MasterKey> {
    let bytes = STANDARD.decode(text.trim()).ok()?;
    bytes.try_into().ok().map(MasterKey)
}

fn network(text: &str) -> Result<IpNet, String> {
    match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
        (Ok(network), _) if network == network.trunc() => Ok(network),
        (Ok(network), _) => Err(format!("{text} has bits beside its network; write it as {}", network.trunc())),
        (Err(_), Ok(address)) => Err(format!("{text} is an address; write it as {}", IpNet::from(address))),
        (Err(_), Err(_)) => Err(format!("{} is no network in CIDR form, such as 10.0.0.0/8", shown(text))),
    }
}

/// `level` or `target=level`.
fn is_log_directive(text: &str) -> bool {
    let is_level = |word: &str| {
        ["error", "warn", "info", "debug", "trace", "off"].iter().any(|level| level.eq_ignore_ascii_case(word))
    };
    let is_target =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'));
    match text.trim().split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(text.trim()),
    }
}

/// A value as a fault repeats it: quoted, and not for ever.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
