//! Answers that are read while they come, and given up while they come.

use super::*;
use tokio::sync::Notify;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const FIRST: &[u8] = b"9\r\ndata: 1\n\n\r\n";
const SECOND: &[u8] = b"9\r\ndata: 2\n\n\r\n";
const END: &[u8] = b"0\r\n\r\n";

async fn open(transport: &HttpTransport, request: &OutboundRequest) -> Result<OpenAnswer, TransportError> {
    transport.open(request, &loopback(), Instant::now() + Duration::from_secs(20)).await
}

async fn opened(transport: &HttpTransport, provider: &Provider) -> OpenAnswer {
    open(transport, &post(provider.url("/"), "{}")).await.expect("an answer")
}

/// All that comes and how it ends.
async fn rest(answer: &mut OpenAnswer) -> (Vec<u8>, Result<(), TransportFault>) {
    let mut bytes = vec![];
    loop {
        match answer.body.chunk().await {
            Ok(Some(chunk)) => {
                assert!(!chunk.is_empty());
                bytes.extend(chunk);
            }
            Ok(None) => return (bytes, Ok(())),
            Err(fault) => return (bytes, Err(fault)),
        }
    }
}

/// A provider that writes the parts one after the other, each but the first only when it is told to. It goes on to the
/// next request on the connection, and tells when a client has closed.
async fn in_parts(parts: &[&'static [u8]]) -> (Provider, Arc<Notify>, mpsc::UnboundedReceiver<()>) {
    let (told, ended) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let (word, parts) = (Arc::clone(&go_on), parts.to_vec());
    let provider = Provider::start(move |_, mut stream| {
        let (told, word, parts) = (told.clone(), Arc::clone(&word), parts.clone());
        async move {
            while read_request(&mut stream).await.is_some() {
                for (number, part) in parts.iter().enumerate() {
                    if number > 0 {
                        tokio::select! {
                            () = word.notified() => {}
                            () = read_to_close(&mut stream) => break,
                        }
                    }
                    stream.write_all(part).await.expect("the client reads");
                }
            }
            told.send(()).expect("the test listens");
        }
    })
    .await;
    (provider, go_on, ended)
}

const PARTS: &[&[u8]] = &[HEAD, FIRST, SECOND, END];

#[tokio::test]
async fn each_part_is_seen_when_it_comes() {
    let (provider, go_on, _ended) = in_parts(PARTS).await;
    let transport = transport();
    let mut answer = opened(&transport, &provider).await;
    assert_eq!((answer.status, answer.content_type.as_deref()), (200, Some("text/event-stream")));
    for expected in ["data: 1\n\n", "data: 2\n\n"] {
        go_on.notify_one();
        assert_eq!(answer.body.chunk().await, Ok(Some(Bytes::from(expected))));
    }
    assert_eq!(transport.idle_connections(), 0);
    go_on.notify_one();
    assert_eq!(answer.body.chunk().await, Ok(None));
    assert_eq!(answer.body.chunk().await, Ok(None));
}

#[tokio::test]
async fn a_body_read_to_its_end_gives_its_connection_back() {
    let (provider, go_on, _ended) = in_parts(PARTS).await;
    let transport = transport();
    for _ in 0..3 {
        let mut answer = opened(&transport, &provider).await;
        assert_eq!(transport.idle_connections(), 0);
        for _ in 0..2 {
            go_on.notify_one();
            answer.body.chunk().await.expect("a part");
        }
        go_on.notify_one();
        assert_eq!(answer.body.chunk().await, Ok(None));
        // The answer that is still held has nothing to do with the connection any more.
        assert_eq!((provider.connections(), transport.idle_connections()), (1, 1));
    }
}

#[tokio::test]
async fn a_whole_answer_is_the_same_opened_or_sent() {
    let provider = Provider::answering(OK).await;
    let transport = transport();
    for _ in 0..2 {
        assert_eq!(send(&transport, &get(provider.url("/"))).await, answer(200, "{}"));
        let mut answer = opened(&transport, &provider).await;
        assert_eq!(answer.body.chunk().await, Ok(Some(Bytes::from_static(b"{}"))));
        // The length was announced: this is the end.
        assert_eq!((provider.connections(), transport.idle_connections()), (1, 1));
        assert_eq!(answer.body.chunk().await, Ok(None));
    }
}

#[tokio::test]
async fn an_answer_without_a_body_is_at_its_end() {
    for head in ["202 Accepted\r\ncontent-length: 0", "204 No Content", "304 Not Modified"] {
        let provider = Provider::answering(format!("HTTP/1.1 {head}\r\n\r\n")).await;
        let transport = transport();
        for _ in 0..2 {
            drop(opened(&transport, &provider).await);
            assert_eq!((provider.connections(), transport.idle_connections()), (1, 1), "{head}");
        }
        assert_eq!(opened(&transport, &provider).await.body.chunk().await, Ok(None));
    }
}

// Closing the connection is how a call is cancelled at an MCP server.
#[tokio::test]
async fn a_body_that_is_dropped_closes_its_connection() {
    for chunks in 0..=2 {
        let (provider, go_on, mut ended) = in_parts(PARTS).await;
        let transport = transport();
        let mut answer = opened(&transport, &provider).await;
        for _ in 0..chunks {
            go_on.notify_one();
            answer.body.chunk().await.expect("a part");
        }
        drop(answer);
        ended.recv().await.expect("the connection was closed");
        assert_eq!((provider.connections(), transport.idle_connections()), (1, 0));
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_unread_closes_its_connection() {
    // All has come, nothing was looked at; what is still in the sockets must not keep the connection.
    let (provider, _, mut ended) = in_parts(&[HEAD, FIRST]).await;
    let all = Provider::answering([HEAD, FIRST, SECOND, END].concat()).await;
    let transport = transport();
    drop(opened(&transport, &all).await);
    assert_eq!(transport.idle_connections(), 0);
    let sized = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nxxxx";
    let (partly, _, mut closed) = in_parts(&[sized, b"xxxx"]).await;
    drop(opened(&transport, &partly).await);
    closed.recv().await.expect("the connection was closed");
    drop(opened(&transport, &provider).await);
    ended.recv().await.expect("the connection was closed");
    assert_eq!(transport.idle_connections(), 0);
}

#[tokio::test]
async fn a_server_that_never_stops_is_left() {
    let (told, mut ended) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, mut stream| {
        let told = told.clone();
        async move {
            read_request(&mut stream).await.expect("a request");
            stream.write_all(HEAD).await.expect("the client reads");
            while stream.write_all(FIRST).await.is_ok() {}
            told.send(()).expect("the test listens");
        }
    })
    .await;
    let mut answer = opened(&transport(), &provider).await;
    answer.body.chunk().await.expect("a part");
    drop(answer);
    ended.recv().await.expect("the connection was closed");
}

#[tokio::test]
async fn a_chunk_that_is_given_up_loses_nothing() {
    let (provider, go_on, mut ended) = in_parts(PARTS).await;
    let mut answer = opened(&transport(), &provider).await;
    assert!(timeout(Duration::from_millis(20), answer.body.chunk()).await.is_err());
    go_on.notify_one();
    assert_eq!(answer.body.chunk().await, Ok(Some(Bytes::from_static(b"data: 1\n\n"))));
    assert!(timeout(Duration::from_millis(20), answer.body.chunk()).await.is_err());
    go_on.notify_one();
    assert_eq!(answer.body.chunk().await, Ok(Some(Bytes::from_static(b"data: 2\n\n"))));
    // Given up with the body: the usual way a call ends early.
    let waiting = tokio::spawn(async move { answer.body.chunk().await });
    tokio::task::yield_now().await;
    waiting.abort();
    ended.recv().await.expect("the connection was closed");
}

#[tokio::test]
async fn two_answers_at_once_have_two_connections() {
    let (provider, go_on, _ended) = in_parts(PARTS).await;
    let transport = transport();
    let mut both = [opened(&transport, &provider).await, opened(&transport, &provider).await];
    assert_eq!((provider.connections(), transport.idle_connections()), (2, 0));
    for answer in &mut both {
        let word = async {
            loop {
                go_on.notify_waiters();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let read = tokio::select! { read = rest(answer) => read, () = word => unreachable!("it never ends") };
        assert_eq!(read, (b"data: 1\n\ndata: 2\n\n".to_vec(), Ok(())));
    }
    assert_eq!((provider.connections(), transport.idle_connections()), (2, 2));
}

// BerriAI/litellm#33374: a timeout that returns long after its time.
#[tokio::test]
async fn the_deadline_is_for_the_head() {
    for parts in [&[&b""[..], b"x"], &[&b"HTTP/1.1 200 OK\r\ncontent-ty"[..], b"x"]] {
        let (provider, _, mut ended) = in_parts(parts).await;
        let (transport, start) = (transport(), Instant::now());
        let request = post(provider.url("/"), "{}");
        let result = transport.open(&request, &loopback(), start + Duration::from_millis(100)).await;
        assert_eq!(result.expect_err("no head"), TransportError { kind: TransportFault::Timeout, bytes_sent: true });
        assert!(start.elapsed() < Duration::from_secs(10));
        ended.recv().await.expect("the connection was closed");
        let result = transport.open(&request, &loopback(), Instant::now()).await;
        assert_eq!(result.expect_err("too late"), TransportError { kind: TransportFault::Timeout, bytes_sent: false });
        assert_eq!(provider.connections(), 1);
    }
}

#[tokio::test]
async fn the_body_may_outlast_the_deadline() {
    let (provider, go_on, _ended) = in_parts(&[HEAD, FIRST, END]).await;
    let deadline = Instant::now() + Duration::from_millis(200);
    let mut answer = transport().open(&get(provider.url("/")), &loopback(), deadline).await.expect("an answer");
    tokio::time::sleep_until(deadline + Duration::from_millis(1)).await;
    go_on.notify_one();
    assert_eq!(answer.body.chunk().await, Ok(Some(Bytes::from_static(b"data: 1\n\n"))));
    go_on.notify_one();
    assert_eq!(answer.body.chunk().await, Ok(None));
}

/// What comes of an answer after which the provider closes.
async fn read_closing(bytes: &'static [u8]) -> (Vec<u8>, Result<(), TransportFault>) {
    let provider = Provider::start(move |_, mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        stream.write_all(bytes).await.expect("the client reads");
    })
    .await;
    let transport = transport();
    let mut answer = opened(&transport, &provider).await;
    let (bytes, end) = rest(&mut answer).await;
    assert_eq!(rest(&mut answer).await, (vec![], end), "the end is final");
    if end.is_err() {
        assert_eq!(transport.idle_connections(), 0);
    }
    (bytes, end)
}

#[tokio::test]
async fn a_body_that_breaks_off_never_ends_like_a_whole_one() {
    for (bytes, fault) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nxxxx"[..], TransportFault::Reset),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nxxxx\r\n", TransportFault::Reset),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nxxxx\r\nzzz\r\n", TransportFault::Malformed),
    ] {
        assert_eq!(read_closing(bytes).await, (b"xxxx".to_vec(), Err(fault)), "{}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(read_closing(b"HTTP/1.1 200 OK\r\n\r\nxxxx").await, (b"xxxx".to_vec(), Ok(())));
    let with_trailer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nxxxx\r\n0\r\nx-note: 1\r\n\r\n";
    assert_eq!(read_closing(with_trailer).await, (b"xxxx".to_vec(), Ok(())));
}

#[tokio::test]
async fn what_holds_for_sent_requests_holds_for_opened_ones() {
    let transport = transport();
    let provider = Provider::answering(OK).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let refused = transport.open(&get(provider.url("/")), &EgressPolicy::default(), deadline).await;
    let blocked = TransportError { kind: TransportFault::BlockedAddress, bytes_sent: false };
    assert_eq!(refused.expect_err("loopback is not allowed"), blocked);
    assert_eq!(provider.connections(), 0);
    let elsewhere = provider.url("/secret");
    let moved = format!("HTTP/1.1 307 Moved\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(opened(&transport, &Provider::answering(moved).await).await.status, 307);
    assert_eq!(provider.connections(), 0);
    let coded = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx";
    for (answer, kind) in [(coded, TransportFault::Malformed), ("SSH-2.0-x\r\n\r\n", TransportFault::Malformed)] {
        let provider = Provider::answering(answer).await;
        let error = open(&transport, &post(provider.url("/"), "{}")).await.expect_err("a bad answer");
        assert_eq!(error, TransportError { kind, bytes_sent: true });
    }
    let error = open(&transport, &get("ftp://127.0.0.1/")).await.expect_err("no URL of ours");
    assert_eq!(error, TransportError { kind: TransportFault::BadUrl, bytes_sent: false });
}

#[tokio::test]
async fn a_kept_connection_serves_only_who_may_reach_its_address() {
    let provider = Provider::answering(OK).await;
    let transport = transport();
    rest(&mut opened(&transport, &provider).await).await.1.expect("an answer");
    assert_eq!(transport.idle_connections(), 1);
    let deadline = Instant::now() + Duration::from_secs(20);
    let refused = transport.open(&get(provider.url("/")), &EgressPolicy::default(), deadline).await;
    assert_eq!(refused.expect_err("it may not").kind, TransportFault::BlockedAddress);
    assert_eq!((provider.connections(), transport.idle_connections()), (1, 1));
}

#[tokio::test]
async fn a_request_lost_on_a_kept_connection_is_not_opened_again() {
    let provider = Provider::start(|_, mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        stream.write_all(OK).await.expect("the client reads");
        read_request(&mut stream).await.expect("another request");
    })
    .await;
    let transport = transport();
    rest(&mut opened(&transport, &provider).await).await.1.expect("an answer");
    let error = open(&transport, &post(provider.url("/"), "{}")).await.expect_err("it was lost");
    assert_eq!(error, TransportError { kind: TransportFault::Reset, bytes_sent: true });
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn a_session_id_is_kept_when_it_can_be_sent_back() {
    let id = async |line: &str| {
        let head = format!("HTTP/1.1 200 OK\r\n{line}\r\ncontent-length: 0\r\n\r\n");
        let provider = Provider::answering(head).await;
        opened(&transport(), &provider).await.session_id
    };
    let longest = "x".repeat(1024);
    for good in ["1", "!~", "ey.Jh-_=/+", &longest] {
        assert_eq!(id(&format!("Mcp-Session-Id: {good}")).await.as_deref(), Some(good));
    }
    let long = "x".repeat(1025);
    for bad in ["", "a b", "\u{17e}", "a\tb", &long] {
        assert_eq!(id(&format!("MCP-SESSION-ID: {bad}")).await, None, "{bad}");
    }
    assert_eq!(id("x-other: 1").await, None);
}

#[tokio::test]
async fn a_media_type_comes_as_it_was_written() {
    for written in ["application/json", "Text/Event-Stream; charset=UTF-8"] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {written}\r\ncontent-length: 0\r\n\r\n");
        let answer = opened(&transport(), &Provider::answering(head).await).await;
        assert_eq!(answer.content_type.as_deref(), Some(written));
    }
    assert_eq!(opened(&transport(), &Provider::answering(OK).await).await.content_type, None);
}

#[test]
fn an_open_answer_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let transport = transport();
    is_send(&transport.open(&get("http://127.0.0.1/"), &loopback(), Instant::now()));
    fn moves<T: Send>() {}
    moves::<OpenAnswer>();
}
