//! Making one connection to one address that somebody else has checked.

use super::target::{Origin, OriginHost};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// What requests are sent with.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Largest head of an answer, and most bytes read ahead of a slow reader.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Why the roots or the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportSetupError {
    /// The PEM text is damaged.
    #[error("the additional root certificates are not valid PEM")]
    Pem(#[source] pem::Error),
    /// There is no certificate in the PEM text.
    #[error("there is no certificate among the additional roots")]
    NoCertificate,
    /// A certificate cannot be a root.
    #[error("an additional root certificate is refused")]
    Certificate(#[source] rustls::Error),
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("the connection failed")]
    Tcp(#[source] io::Error),
    #[error("the host name cannot be in a certificate")]
    ServerName,
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the connection cannot carry HTTP")]
    Http(#[source] hyper::Error),
}

/// Opens connections; TLS sessions are resumed across them.
#[derive(Clone)]
pub(super) struct Connector {
    tls: TlsConnector,
}

impl Connector {
    /// Trusts the public roots and those in `extra_roots_pem`.
    pub(super) fn new(extra_roots_pem: Option<&[u8]>) -> Result<Self, TransportSetupError> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if let Some(text) = extra_roots_pem {
            let before = roots.len();
            for certificate in CertificateDer::pem_slice_iter(text) {
                let certificate = certificate.map_err(TransportSetupError::Pem)?;
                roots.add(certificate).map_err(TransportSetupError::Certificate)?;
            }
            if roots.len() == before {
                return Err(TransportSetupError::NoCertificate);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TransportSetupError::Tls)?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Connects to exactly this address.
    pub(super) async fn tcp(&self, address: SocketAddr) -> Result<TcpStream, OpenError> {
        let stream = TcpStream::connect(address).await.map_err(OpenError::Tcp)?;
        stream.set_nodelay(true).map_err(OpenError::Tcp)?;
        Ok(stream)
    }

    /// Makes a TCP connection one that carries HTTP, with the certificate checked against the origin's name where it is
    /// `https`. The connection is driven by a task on the caller's runtime until either side closes it.
    pub(super) async fn http(&self, stream: TcpStream, origin: &Origin) -> Result<Sender, OpenError> {
        if !origin.tls {
            return handshake(stream).await;
        }
        let name = match &origin.host {
            OriginHost::Name(name) => ServerName::try_from(String::from(&**name)).map_err(|_| OpenError::ServerName)?,
            OriginHost::Address(address) => ServerName::from(*address),
        };
        handshake(self.tls.connect(name, stream).await.map_err(OpenError::Tls)?).await
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(stream: S) -> Result<Sender, OpenError> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BUFFER_BYTES);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(OpenError::Http)?;
    tokio::spawn(async move {
        // How a connection ended is told to whoever waits for an answer on it; an idle one has nobody to tell.
        let _ = connection.await;
    });
    Ok(sender)
}
