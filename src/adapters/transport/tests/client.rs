//! The small client of the command line.

use super::*;

fn client() -> SimpleClient {
    SimpleClient::new(None, Duration::from_secs(20)).expect("the defaults are good")
}

#[tokio::test]
async fn a_call_is_sent_as_it_is_given_and_answered_whole() {
    let (told, mut requests) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, mut stream| {
        let told = told.clone();
        async move {
            told.send(read_request(&mut stream).await.expect("a request")).expect("the test listens");
            let answer = b"HTTP/1.1 409 Conflict\r\netag: \"1\"\r\ncontent-length: 3\r\n\r\nabc";
            stream.write_all(answer).await.expect("the client reads");
        }
    })
    .await;
    let headers = [("x-auth".to_owned(), "tg_ws_1".to_owned())];
    let body = Some(Bytes::from_static(b"{\"a\":1}"));
    let answer = client().call(SimpleMethod::Patch, &provider.url("/v1/x?y=1"), &headers, body).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, &answer.body[..]), (409, &b"abc"[..]));
    assert_eq!(answer.headers[0], ("etag".to_owned(), "\"1\"".to_owned()));
    let request = String::from_utf8(requests.recv().await.expect("a request")).expect("text");
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "PATCH /v1/x?y=1 HTTP/1.1\r\nhost: {}\r\nuser-agent: toolgate/{version}\r\naccept-encoding: identity\r\n\
         content-type: application/json\r\nx-auth: tg_ws_1\r\ncontent-length: 7\r\n\r\n{{\"a\":1}}",
        provider.address
    );
    assert_eq!(request, expected);
}

#[tokio::test]
async fn every_method_has_its_word() {
    let (provider, mut requests) = Provider::recording().await;
    for (method, word) in [
        (SimpleMethod::Get, "GET"),
        (SimpleMethod::Post, "POST"),
        (SimpleMethod::Put, "PUT"),
        (SimpleMethod::Patch, "PATCH"),
        (SimpleMethod::Delete, "DELETE"),
    ] {
        let url = format!("http://localhost:{}/", provider.address.port());
        client().call(method, &url, &[], None).await.expect("an answer");
        let request = requests.recv().await.expect("a request");
        assert!(request.starts_with(format!("{word} / HTTP/1.1\r\n").as_bytes()));
    }
}

#[tokio::test]
async fn failures_are_told_in_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("a bound address"));
    let short = SimpleClient::new(None, Duration::from_millis(50)).expect("the defaults are good");
    let late = short.call(SimpleMethod::Get, &url, &[], None).await.expect_err("nobody answers");
    assert!(matches!(late, SimpleError::Timeout { .. }), "{late}");
    drop(listener);
    let refused = client().call(SimpleMethod::Get, &url, &[], None).await.expect_err("nobody listens");
    assert_eq!(refused.to_string(), format!("no connection to {url}"));
    let bad = client().call(SimpleMethod::Get, "localhost:8080", &[], None).await.expect_err("no URL");
    assert_eq!(bad.to_string(), "localhost:8080 is not a URL that can be called");
    let header = [("x".to_owned(), "a\nb".to_owned())];
    let bad = client().call(SimpleMethod::Get, &url, &header, None).await.expect_err("no header");
    assert_eq!(bad.to_string(), "the header x cannot be sent");
}
