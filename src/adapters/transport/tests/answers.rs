//! What is made of a provider's answer.

use super::*;

fn sized(length: usize) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    bytes.resize(bytes.len() + length, b'x');
    bytes
}

fn chunked(length: usize) -> Vec<u8> {
    let mut text = String::from("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    for left in (0..length).step_by(100).map(|start| (length - start).min(100)) {
        text += &format!("{left:x}\r\n{}\r\n", "x".repeat(left));
    }
    (text + "0\r\n\r\n").into_bytes()
}

async fn result_of(bytes: impl Into<Vec<u8>>) -> Result<InboundAnswer, TransportError> {
    let provider = Provider::answering(bytes).await;
    send(&transport(), &post(provider.url("/"), "{}")).await
}

/// What comes of an answer after which the provider closes.
async fn result_of_closing(bytes: &'static [u8]) -> Result<InboundAnswer, TransportError> {
    let provider = Provider::start(move |_, mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        stream.write_all(bytes).await.expect("the client reads");
    })
    .await;
    send(&transport(), &post(provider.url("/"), "{}")).await
}

#[tokio::test]
async fn every_status_is_an_answer() {
    for status in [201, 204, 304, 400, 401, 404, 409, 429, 500, 503, 599] {
        let head = format!("HTTP/1.1 {status} Word\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(result_of(head).await, answer(status, ""));
    }
}

// modelcontextprotocol/servers#4838, psd401/aistudio#791: a redirect leads past the check of the address.
#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let elsewhere = Provider::answering(OK).await;
    for status in [301, 302, 303, 307, 308] {
        let location = elsewhere.url("/secret");
        let head = format!("HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(result_of(head).await, answer(status, ""));
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_passes() {
    let expected = "x".repeat(LIMIT_BYTES);
    assert_eq!(result_of(sized(LIMIT_BYTES)).await, answer(200, expected.clone()));
    assert_eq!(result_of(chunked(LIMIT_BYTES)).await, answer(200, expected));
    assert_eq!(result_of(sized(LIMIT_BYTES + 1)).await, error(TransportFault::TooLarge, true));
    assert_eq!(result_of(chunked(LIMIT_BYTES + 1)).await, error(TransportFault::TooLarge, true));
}

#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_before_the_body_comes() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    assert_eq!(result_of(head).await, error(TransportFault::TooLarge, true));
}

// truefoundry#769: an answer without end must not be held.
#[tokio::test]
async fn an_endless_answer_is_cut_while_it_streams() {
    let (told, mut ended) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, mut stream| {
        let told = told.clone();
        async move {
            read_request(&mut stream).await.expect("a request");
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.expect("the client reads");
            while stream.write_all(b"4\r\nxxxx\r\n").await.is_ok() {}
            told.send(()).expect("the test listens");
        }
    })
    .await;
    let transport = transport();
    assert_eq!(send(&transport, &get(provider.url("/"))).await, error(TransportFault::TooLarge, true));
    ended.recv().await.expect("the connection was closed");
    assert_eq!(transport.idle_connections(), 0);
}

#[tokio::test]
async fn only_an_answer_as_it_is_is_read() {
    let coded = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx";
    assert_eq!(result_of(coded).await, error(TransportFault::Malformed, true));
    let plain = "HTTP/1.1 200 OK\r\ncontent-encoding: Identity\r\ncontent-length: 2\r\n\r\nxx";
    assert_eq!(result_of(plain).await, answer(200, "xx"));
}

#[tokio::test]
async fn what_is_not_http_is_malformed() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    ] {
        let result = result_of_closing(bytes).await;
        assert_eq!(result, error(TransportFault::Malformed, true), "{}", String::from_utf8_lossy(bytes));
    }
}

#[tokio::test]
async fn a_head_without_end_is_malformed() {
    let mut head = b"HTTP/1.1 200 OK\r\nx-filler: ".to_vec();
    head.resize(200_000, b'x');
    let head: &'static [u8] = head.leak();
    let provider = Provider::start(move |_, mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        // The client closes in the middle.
        let _ = stream.write_all(head).await;
        read_to_close(&mut stream).await;
    })
    .await;
    let result = send(&transport(), &get(provider.url("/"))).await;
    assert_eq!(result, error(TransportFault::Malformed, true));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_reset() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nxxxx",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nxxxx\r\n",
    ] {
        let result = result_of_closing(bytes).await;
        assert_eq!(result, error(TransportFault::Reset, true), "{}", String::from_utf8_lossy(bytes));
    }
}

#[tokio::test]
async fn an_answer_may_end_with_its_connection() {
    assert_eq!(result_of_closing(b"HTTP/1.1 200 OK\r\n\r\nxyz").await, answer(200, "xyz"));
    assert_eq!(result_of_closing(b"HTTP/1.0 200 OK\r\n\r\nxyz").await, answer(200, "xyz"));
}

#[tokio::test]
async fn interim_answers_are_read_over() {
    let bytes = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                 HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(result_of(bytes).await, answer(200, "{}"));
}

/// An answer that stops after `bytes`, under a deadline of 150 ms.
async fn stalled(bytes: &'static [u8]) {
    let (told, mut ended) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, mut stream| {
        let told = told.clone();
        async move {
            read_request(&mut stream).await.expect("a request");
            stream.write_all(bytes).await.expect("the client reads");
            read_to_close(&mut stream).await;
            told.send(()).expect("the test listens");
        }
    })
    .await;
    let transport = transport();
    let start = Instant::now();
    let deadline = start + Duration::from_millis(150);
    let result = transport.send(&get(provider.url("/")), &loopback(), LIMIT_BYTES, deadline).await;
    assert_eq!(result, error(TransportFault::Timeout, true));
    assert!(start.elapsed() < Duration::from_secs(10), "the deadline was {:?} ago", deadline.elapsed());
    ended.recv().await.expect("the connection was closed");
    assert_eq!(transport.idle_connections(), 0);
}

// BerriAI/litellm#33374: a timeout that returns long after its time.
#[tokio::test]
async fn a_deadline_is_a_deadline_wherever_the_answer_stalls() {
    stalled(b"").await;
    stalled(b"HTTP/1.1 200 OK\r\ncontent-len").await;
    stalled(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nxx").await;
    stalled(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nxx\r\n").await;
}

#[tokio::test]
async fn an_entity_tag_is_kept_when_it_can_be_sent_back() {
    let tag = async |line: &str| {
        let head = format!("HTTP/1.1 200 OK\r\n{line}\r\ncontent-length: 0\r\n\r\n");
        result_of(head).await.expect("an answer").etag
    };
    for good in ["\"a1\"", "W/\"a1\"", "\"\"", "\"a,b\""] {
        assert_eq!(tag(&format!("ETag: {good}")).await.as_deref(), Some(good));
    }
    let long = format!("\"{}\"", "x".repeat(300));
    for bad in ["a1", "\"a1", "\"a\"b\"", "\"a b\"", "w/\"a\"", "\"ä\"", &long] {
        assert_eq!(tag(&format!("ETag: {bad}")).await, None, "{bad}");
    }
    assert_eq!(tag("X-Other: 1").await, None);
}
