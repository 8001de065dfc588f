//! The exact bytes a provider receives.

use super::*;

async fn received(request: &mut OutboundRequest, path: &str) -> (String, SocketAddr) {
    let (provider, mut requests) = Provider::recording().await;
    request.url = provider.url(path);
    assert_eq!(send(&transport(), request).await, answer(200, "{}"));
    let bytes = requests.recv().await.expect("a request");
    (String::from_utf8(bytes).expect("text"), provider.address)
}

// BerriAI/litellm#35403: the configured credential arrives. docker/mcp-gateway#97: nothing that nobody asked for does.
#[tokio::test]
async fn a_post_is_its_own_headers_the_fixed_ones_and_the_very_body() {
    let mut request = post("", "{\"amount\":1.0,\"note\":\"\u{17e}\"}");
    request.headers = vec![
        ("authorization".into(), "Bearer configured".into()),
        ("x-caller-identity".into(), "Zo\u{eb}".into()),
        ("traceparent".into(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
    ];
    let (text, address) = received(&mut request, "/mcp/run").await;
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "POST /mcp/run HTTP/1.1\r\nhost: {address}\r\nuser-agent: toolgate/{version}\r\naccept: application/json\r\n\
         accept-encoding: identity\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\
         authorization: Bearer configured\r\nx-caller-identity: Zo\u{eb}\r\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n\
         {{\"amount\":1.0,\"note\":\"\u{17e}\"}}"
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_get_has_no_body_and_says_nothing_of_one() {
    let (text, address) = received(&mut get(""), "/a%20b/manifest.json?x=%7B1%7D&y=2").await;
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "GET /a%20b/manifest.json?x=%7B1%7D&y=2 HTTP/1.1\r\nhost: {address}\r\nuser-agent: toolgate/{version}\r\n\
         accept: application/json\r\naccept-encoding: identity\r\n\r\n"
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_delete_has_no_body_and_says_nothing_of_one() {
    let mut request = OutboundRequest { method: Method::Delete, ..get("") };
    request.headers = vec![("mcp-session-id".into(), "a1".into())];
    let (text, address) = received(&mut request, "/mcp").await;
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "DELETE /mcp HTTP/1.1\r\nhost: {address}\r\nuser-agent: toolgate/{version}\r\naccept: application/json\r\n\
         accept-encoding: identity\r\nmcp-session-id: a1\r\n\r\n"
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn any_method_may_ask_for_another_media_type() {
    for method in [Method::Get, Method::Post, Method::Delete] {
        let mut request = OutboundRequest { method, ..get("") };
        request.headers = vec![("accept".into(), "application/json, text/event-stream".into())];
        let (text, _) = received(&mut request, "/").await;
        assert_eq!(text.matches("accept: ").count(), 1, "{text}");
        assert!(text.contains("\r\naccept: application/json, text/event-stream\r\n"), "{text}");
    }
}

#[tokio::test]
async fn an_empty_post_says_that_it_is_empty() {
    let (text, _) = received(&mut post("", ""), "/").await;
    assert!(text.contains("\r\ncontent-length: 0\r\n"), "{text}");
}

#[tokio::test]
async fn a_header_that_replaces_a_default_stands_alone() {
    let mut request = get("");
    request.headers =
        vec![("user-agent".into(), "theirs".into()), ("x-many".into(), "1".into()), ("x-many".into(), "2".into())];
    let (text, _) = received(&mut request, "/").await;
    assert_eq!(text.matches("user-agent: ").count(), 1, "{text}");
    assert!(text.contains("\r\nuser-agent: theirs\r\n") && text.contains("\r\nx-many: 1\r\nx-many: 2\r\n"), "{text}");
}

#[tokio::test]
async fn headers_that_would_change_the_framing_are_never_sent() {
    let (provider, mut requests) = Provider::recording().await;
    let transport = transport();
    for (name, value) in [
        ("host", "inner.example"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("connection", "x-caller-identity"),
        ("accept-encoding", "gzip"),
        ("x-note", "one\r\nx-injected: 1"),
        ("x-note", "one\ntwo"),
        ("x note", "1"),
        ("", "1"),
    ] {
        let mut request = post(provider.url("/"), "{}");
        request.headers = vec![(name.into(), value.into())];
        assert_eq!(send(&transport, &request).await, error(TransportFault::BadUrl, false), "{name}: {value}");
    }
    assert!(requests.try_recv().is_err());
    assert_eq!(provider.connections(), 0);
}
