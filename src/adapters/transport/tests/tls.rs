//! TLS with a root of our own.

use super::*;
use std::collections::VecDeque;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const ROOT: &[u8] = include_bytes!("../../../../tests/fixtures/tls/root.pem");
const CERTIFICATE: &[u8] = include_bytes!("../../../../tests/fixtures/tls/server.pem");
const KEY: &[u8] = include_bytes!("../../../../tests/fixtures/tls/server-key.pem");

/// With a certificate for `api.test` and `127.0.0.1`.
fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the defaults are good")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key fits");
    TlsAcceptor::from(Arc::new(config))
}

/// A provider that tells the name each client asked for.
async fn provider() -> (Provider, mpsc::UnboundedReceiver<Option<String>>) {
    let acceptor = acceptor();
    let (told, names) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, stream| {
        let (acceptor, told) = (acceptor.clone(), told.clone());
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            told.send(stream.get_ref().1.server_name().map(str::to_owned)).expect("the test listens");
            while read_request(&mut stream).await.is_some() {
                stream.write_all(OK).await.expect("the client reads");
            }
        }
    })
    .await;
    (provider, names)
}

/// A transport for which every name is the provider.
fn transport_to(provider: &Provider, extra_roots_pem: Option<&[u8]>) -> HttpTransport {
    let config = TransportConfig { extra_roots_pem: extra_roots_pem.map(<[u8]>::to_vec), ..TransportConfig::default() };
    let answers: VecDeque<_> = std::iter::repeat_n(vec![provider.address], 10).collect();
    let own = Arc::new(OwnListeners::default());
    HttpTransport::with_resolver(config, own, Resolver::Scripted(Mutex::new(answers))).expect("the root is good")
}

#[tokio::test]
async fn a_certificate_for_the_name_under_a_root_of_ours_is_trusted() {
    let (provider, mut names) = provider().await;
    let transport = transport_to(&provider, Some(ROOT));
    for path in ["/a", "/b"] {
        assert_eq!(send(&transport, &get(format!("https://API.test.{path}"))).await, answer(200, "{}"));
    }
    assert_eq!(provider.connections(), 1);
    assert_eq!(names.recv().await, Some(Some("api.test".to_owned())));
    let by_address = get(format!("https://{}/", provider.address));
    assert_eq!(send(&transport, &by_address).await, answer(200, "{}"));
    assert_eq!(names.recv().await, Some(None));
}

#[tokio::test]
async fn an_answer_that_is_given_up_closes_its_connection() {
    let acceptor = acceptor();
    let (told, mut ended) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, stream| {
        let (acceptor, told) = (acceptor.clone(), told.clone());
        async move {
            let mut stream = acceptor.accept(stream).await.expect("a handshake");
            read_request(&mut stream).await.expect("a request");
            let part = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nxxxx\r\n";
            stream.write_all(part).await.expect("the client reads");
            told.send(read_request(&mut stream).await).expect("the test listens");
        }
    })
    .await;
    let transport = transport_to(&provider, Some(ROOT));
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut answer = transport.open(&get("https://api.test/"), &loopback(), deadline).await.expect("an answer");
    assert_eq!(answer.body.chunk().await, Ok(Some(Bytes::from_static(b"xxxx"))));
    drop(answer);
    assert_eq!(ended.recv().await, Some(None), "the connection was closed");
    assert_eq!(transport.idle_connections(), 0);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let (provider, mut names) = provider().await;
    let transport = transport_to(&provider, Some(ROOT));
    for name in ["other.test", "api.test.other.test", "www.api.test"] {
        let result = send(&transport, &post(format!("https://{name}/"), "{}")).await;
        assert_eq!(result, error(TransportFault::Tls, false), "{name}");
    }
    assert!(names.try_recv().is_err(), "a handshake was finished");
}

#[tokio::test]
async fn a_certificate_under_an_unknown_root_is_refused() {
    let (provider, _names) = provider().await;
    let result = send(&transport_to(&provider, None), &get("https://api.test/")).await;
    assert_eq!(result, error(TransportFault::Tls, false));
}

#[tokio::test]
async fn a_server_without_tls_is_refused_and_a_silent_one_times_out() {
    let plain = Provider::start(|_, mut stream| async move {
        stream.write_all(OK).await.expect("the client reads");
        read_to_close(&mut stream).await;
    })
    .await;
    let result = send(&transport_to(&plain, None), &get("https://api.test/")).await;
    assert_eq!(result, error(TransportFault::Tls, false));
    let silent = Provider::start(|_, mut stream| async move { read_to_close(&mut stream).await }).await;
    let config = TransportConfig { connect_timeout: Duration::from_millis(100), ..TransportConfig::default() };
    let result = send(&transport_with(config), &get(format!("https://{}/", silent.address))).await;
    assert_eq!(result, error(TransportFault::ConnectTimeout, false));
}

#[tokio::test]
async fn a_connection_without_tls_never_serves_https() {
    let provider = Provider::answering(OK).await;
    let transport = transport();
    assert_eq!(send(&transport, &get(provider.url("/"))).await, answer(200, "{}"));
    let result = send(&transport, &get(format!("https://{}/", provider.address))).await;
    assert!(result.is_err_and(|error| !error.bytes_sent));
}

#[test]
fn damaged_roots_are_refused_at_the_start() {
    let refused = |pem: &[u8]| {
        let config = TransportConfig { extra_roots_pem: Some(pem.to_vec()), ..TransportConfig::default() };
        HttpTransport::new(config, Arc::new(OwnListeners::default())).err().expect("refused")
    };
    assert!(matches!(refused(b""), TransportSetupError::NoCertificate));
    assert!(matches!(refused(KEY), TransportSetupError::NoCertificate));
    assert!(matches!(refused(&ROOT[..100]), TransportSetupError::Pem(_)));
    let not_a_certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(refused(not_a_certificate), TransportSetupError::Certificate(_)));
}
