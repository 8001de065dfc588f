//! A small client for a person at a terminal: any URL the operator names, one connection a call, errors in words.

use super::connect::{Connector, OpenError, TransportSetupError};
use super::exchange::{self, BodyError};
use super::target::{Origin, OriginHost, Target};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{self, HeaderValue};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Largest answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Methods of toolgate's own APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimpleMethod {
    /// Reads.
    Get,
    /// Creates or acts.
    Post,
    /// Replaces.
    Put,
    /// Changes members.
    Patch,
    /// Removes.
    Delete,
}

/// An answer of any status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleAnswer {
    /// HTTP status.
    pub status: u16,
    /// Headers with lower-case names, in order; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SimpleError {
    /// Not an absolute `http` or `https` URL without user name and password.
    #[error("{url} is not a URL that can be called")]
    BadUrl {
        /// The URL.
        url: String,
    },
    /// The header cannot be sent.
    #[error("the header {name} cannot be sent")]
    BadHeader {
        /// Its name.
        name: String,
    },
    /// The name does not resolve.
    #[error("the host name of {url} does not resolve")]
    Unresolvable {
        /// The URL.
        url: String,
        /// The resolver's word.
        #[source]
        source: std::io::Error,
    },
    /// No connection could be made.
    #[error("no connection to {url}")]
    Connect {
        /// The URL.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The exchange broke.
    #[error("{url} gave no whole answer")]
    Exchange {
        /// The URL.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer is over 64 MiB.
    #[error("the answer of {url} is too large")]
    TooLarge {
        /// The URL.
        url: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {} s", .after.as_secs())]
    Timeout {
        /// The URL.
        url: String,
        /// The limit.
        after: Duration,
    },
}

/// The client. It has no egress policy: whoever types the URL is the one who may call it.
#[derive(Clone)]
pub struct SimpleClient {
    connector: Connector,
    timeout: Duration,
}

impl SimpleClient {
    /// A client that trusts the public roots and those in `extra_roots_pem`, and waits at most `timeout` for a call.
    pub fn new(extra_roots_pem: Option<&[u8]>, timeout: Duration) -> Result<Self, TransportSetupError> {
        Ok(Self { connector: Connector::new(extra_roots_pem)?, timeout })
    }

    /// Makes one call. A body is sent as JSON; redirects are answers.
    pub async fn call(
        &self,
        method: SimpleMethod,
        url: &str,
        headers: &[(String, String)],
        body: Option<Bytes>,
    ) -> Result<SimpleAnswer, SimpleError> {
        let call = self.call_untimed(method, url, headers, body);
        let late = |_| SimpleError::Timeout { url: url.to_owned(), after: self.timeout };
        tokio::time::timeout(self.timeout, call).await.map_err(late)?
    }

    async fn call_untimed(
        &self,
        method: SimpleMethod,
        url: &str,
        headers: &[(String, String)],
        body: Option<Bytes>,
    ) -> Result<SimpleAnswer, SimpleError> {
        let target = Target::parse(url).map_err(|_| SimpleError::BadUrl { url: url.to_owned() })?;
        let message = message(method, &target, headers, body)?;
        let mut sender = self.connect(&target.origin, url).await?;
        let broken = |error: hyper::Error| SimpleError::Exchange { url: url.to_owned(), source: error.into() };
        let response = sender.send_request(message).await.map_err(broken)?;
        let (head, incoming) = response.into_parts();
        let body = exchange::read_body(incoming, MAX_ANSWER_BYTES).await.map_err(|error| match error {
            BodyError::TooLarge => SimpleError::TooLarge { url: url.to_owned() },
            BodyError::Broken(error) => broken(error),
        })?;
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        Ok(SimpleAnswer { status: head.status.as_u16(), headers, body })
    }

    async fn connect(&self, origin: &Origin, url: &str) -> Result<super::connect::Sender, SimpleError> {
        let failed = |error: OpenError| SimpleError::Connect { url: url.to_owned(), source: error.into() };
        let mut last = None;
        for address in addresses(origin, url).await? {
            match self.connector.tcp(address).await {
                Ok(stream) => return self.connector.http(stream, origin).await.map_err(failed),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) => failed(error),
            None => SimpleError::BadUrl { url: url.to_owned() },
        })
    }
}

async fn addresses(origin: &Origin, url: &str) -> Result<Vec<SocketAddr>, SimpleError> {
    Ok(match &origin.host {
        OriginHost::Address(address) => vec![SocketAddr::new(*address, origin.port)],
        OriginHost::Name(_) if origin.is_localhost() => {
            let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            both.map(|address| SocketAddr::new(address, origin.port)).to_vec()
        }
        OriginHost::Name(name) => {
            let unknown = |source| SimpleError::Unresolvable { url: url.to_owned(), source };
            tokio::net::lookup_host((&**name, origin.port)).await.map_err(unknown)?.collect()
        }
    })
}

fn message(
    method: SimpleMethod,
    target: &Target,
    headers: &[(String, String)],
    body: Option<Bytes>,
) -> Result<Request<Full<Bytes>>, SimpleError> {
    let has_body = body.is_some();
    let mut message = Request::new(Full::new(body.unwrap_or_default()));
    *message.uri_mut() = target.uri.clone();
    *message.method_mut() = match method {
        SimpleMethod::Get => hyper::Method::GET,
        SimpleMethod::Post => hyper::Method::POST,
        SimpleMethod::Put => hyper::Method::PUT,
        SimpleMethod::Patch => hyper::Method::PATCH,
        SimpleMethod::Delete => hyper::Method::DELETE,
    };
    let map = message.headers_mut();
    map.insert(header::HOST, target.host_header.clone());
    map.insert(header::USER_AGENT, exchange::USER_AGENT);
    map.insert(header::ACCEPT_ENCODING, exchange::IDENTITY);
    if has_body {
        map.insert(header::CONTENT_TYPE, exchange::JSON);
    }
    for (name, value) in headers {
        exchange::add_header(map, name, value).ok_or_else(|| SimpleError::BadHeader { name: name.clone() })?;
    }
    Ok(message)
}
