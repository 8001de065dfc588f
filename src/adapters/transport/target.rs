//! From the text of a URL to what a connection and a request line need.

use crate::engine::ports::TransportFault;
use hyper::Uri;
use hyper::header::HeaderValue;
use std::net::IpAddr;
use std::sync::Arc;
use url::{Host, Position, Url};

/// Whom a connection may be reused for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    /// `https`.
    pub(super) tls: bool,
    /// Name or address.
    pub(super) host: OriginHost,
    /// The port, never implied.
    pub(super) port: u16,
}

/// The host of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OriginHost {
    /// A name to resolve, lower-case, without a final dot.
    Name(Box<str>),
    /// An address, in whatever spelling it came.
    Address(IpAddr),
}

impl Origin {
    /// `localhost` and names below it: never asked of a resolver (RFC 6761, section 6.3).
    pub(super) fn is_localhost(&self) -> bool {
        match &self.host {
            OriginHost::Name(name) => &**name == "localhost" || name.ends_with(".localhost"),
            OriginHost::Address(_) => false,
        }
    }
}

/// A parsed URL.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) origin: Arc<Origin>,
    /// The value of `Host`.
    pub(super) host_header: HeaderValue,
    /// Path and query.
    pub(super) uri: Uri,
}

impl Target {
    /// Parses an absolute `http` or `https` URL. One with a user name or password is refused: they would not be sent,
    /// and whoever wrote them expects that they are.
    pub(super) fn parse(text: &str) -> Result<Self, TransportFault> {
        let bad = |_| TransportFault::BadUrl;
        let url = Url::parse(text).map_err(|_| TransportFault::BadUrl)?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(TransportFault::BadUrl),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TransportFault::BadUrl);
        }
        let host = match url.host().ok_or(TransportFault::BadUrl)? {
            Host::Domain(name) => OriginHost::Name(name.strip_suffix('.').unwrap_or(name).into()),
            Host::Ipv4(address) => OriginHost::Address(address.into()),
            Host::Ipv6(address) => OriginHost::Address(address.into()),
        };
        let port = url.port_or_known_default().ok_or(TransportFault::BadUrl)?;
        let host_header =
            HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]).map_err(|_| bad(()))?;
        let uri = url[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| bad(()))?;
        Ok(Self { origin: Arc::new(Origin { tls, host, port }), host_header, uri })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::parse("HTTPS://Api.Example.com:443/a/b?x=1&y=%20#part").expect("a URL");
        assert_eq!(target.host_header, "api.example.com");
        assert_eq!(target.uri, "/a/b?x=1&y=%20");
        let host = OriginHost::Name("api.example.com".into());
        assert_eq!(*target.origin, Origin { tls: true, host, port: 443 });
        let target = Target::parse("http://[::1]:9000").expect("a URL");
        assert_eq!(target.host_header, "[::1]:9000");
        assert_eq!(target.uri, "/");
    }

    #[test]
    fn addresses_in_disguise_are_addresses() {
        for url in ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/"] {
            let target = Target::parse(url).expect("a URL");
            assert_eq!(target.origin.host, OriginHost::Address("127.0.0.1".parse().expect("an address")), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        for url in ["ftp://a.example/", "file:///etc/passwd", "a.example/x", "http://", "https://u:p@a.example/", ""] {
            assert_eq!(Target::parse(url).err(), Some(TransportFault::BadUrl), "{url}");
        }
    }

    #[test]
    fn localhost_is_known_by_its_name() {
        for (url, expected) in [
            ("http://localhost/", true),
            ("http://LOCALHOST./", true),
            ("http://a.localhost:1/", true),
            ("http://notlocalhost/", false),
            ("http://127.0.0.1/", false),
        ] {
            assert_eq!(Target::parse(url).expect("a URL").origin.is_localhost(), expected, "{url}");
        }
    }
}
