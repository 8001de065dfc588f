//! Connections: made, kept, replaced, closed; and what may have been sent on them.

use super::*;
use std::io::{Read, Write};
use tokio::net::TcpSocket;

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let provider = Provider::answering(OK).await;
    let transport = transport();
    for path in ["/a", "/b", "/b?c=1"] {
        assert_eq!(send(&transport, &get(provider.url(path))).await, answer(200, "{}"));
    }
    assert_eq!((provider.connections(), transport.idle_connections()), (1, 1));
}

#[tokio::test]
async fn a_connection_the_provider_wants_closed_is_not_kept() {
    let provider = Provider::answering("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    let transport = transport();
    for expected in 1..=3 {
        assert_eq!(send(&transport, &get(provider.url("/"))).await, answer(200, ""));
        assert_eq!(provider.connections(), expected);
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced_and_the_request_is_sent_once() {
    let (told, mut requests) = mpsc::unbounded_channel();
    let provider = Provider::start(move |_, mut stream| {
        let told = told.clone();
        async move {
            let request = read_request(&mut stream).await.expect("a request");
            stream.write_all(OK).await.expect("the client reads");
            drop(stream);
            told.send(request).expect("the test listens");
        }
    })
    .await;
    let transport = transport();
    for path in ["/1", "/2", "/3"] {
        assert_eq!(send(&transport, &post(provider.url(path), "{}")).await, answer(200, "{}"));
        let request = String::from_utf8(requests.recv().await.expect("a request")).expect("text");
        assert!(request.starts_with(&format!("POST {path} ")), "{request}");
    }
    assert!(requests.try_recv().is_err(), "a request came twice");
    assert_eq!(provider.connections(), 3);
}

/// Reads a request without a body and answers it, on a thread of its own.
fn serve_one(listener: &std::net::TcpListener) -> (std::net::TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        request.extend(byte);
    }
    stream.write_all(OK).expect("the client reads");
    (stream, request)
}

#[tokio::test]
async fn a_request_handed_back_unwritten_is_sent_on_one_fresh_connection() {
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (listener, signals) = (listen(), listen());
    let address = listener.local_addr().expect("a bound address");
    let mut signal = TcpStream::connect(signals.local_addr().expect("a bound address")).await.expect("a connection");
    let (close, closing) = std::sync::mpsc::channel();
    let (closed, is_closed) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (first, _) = serve_one(&listener);
        closing.recv().expect("the word to close");
        drop(first);
        signals.accept().expect("a connection").0.write_all(b"!").expect("the client reads");
        closed.send(()).expect("the test listens");
        serve_one(&listener).1
    });
    let transport = transport();
    assert_eq!(send(&transport, &get(format!("http://{address}/1"))).await, answer(200, "{}"));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    // The runtime stands still until both have happened. Then it sees both at once and runs this function first, which
    // sends on a connection whose end its driver has yet to notice.
    close.send(()).expect("the server listens");
    is_closed.recv().expect("the server lives");
    signal.read_u8().await.expect("a signal");
    assert_eq!(transport.idle_connections(), 1);
    assert_eq!(send(&transport, &get(format!("http://{address}/2"))).await, answer(200, "{}"));
    assert!(server.join().expect("the server lives").starts_with(b"GET /2 "));
}

#[tokio::test]
async fn a_request_lost_on_a_kept_connection_is_not_sent_again() {
    let provider = Provider::start(|_, mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        stream.write_all(OK).await.expect("the client reads");
        read_request(&mut stream).await.expect("another request");
    })
    .await;
    let transport = transport();
    let request = post(provider.url("/"), "{}");
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
    assert_eq!(send(&transport, &request).await, error(TransportFault::Reset, true));
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn a_reset_after_the_request_says_that_bytes_were_sent() {
    let provider = Provider::start(|_, mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        stream.set_zero_linger().expect("a socket option");
    })
    .await;
    let result = send(&transport(), &post(provider.url("/"), "{}")).await;
    assert_eq!(result, error(TransportFault::Reset, true));
}

#[tokio::test]
async fn a_refused_connection_says_that_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    drop(listener);
    let result = send(&transport(), &post(format!("http://{address}/"), "{}")).await;
    assert_eq!(result, error(TransportFault::ConnectFailed, false));
}

#[tokio::test]
async fn a_passed_deadline_sends_nothing() {
    let (provider, mut requests) = Provider::recording().await;
    let transport = transport();
    assert_eq!(send(&transport, &get(provider.url("/"))).await, answer(200, "{}"));
    let result = transport.send(&get(provider.url("/late")), &loopback(), LIMIT_BYTES, Instant::now()).await;
    assert_eq!(result, error(TransportFault::Timeout, false));
    assert_eq!(send(&transport, &get(provider.url("/next"))).await, answer(200, "{}"));
    requests.recv().await.expect("the first");
    assert!(requests.recv().await.expect("the next").starts_with(b"GET /next "));
}

/// A listener whose queue is full, with the connections that fill it: one more hangs.
async fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("a bound address");
    let mut waiting = vec![];
    while let Ok(stream) = timeout(Duration::from_millis(50), TcpStream::connect(address)).await {
        waiting.push(stream.expect("a place in the queue"));
    }
    (listener, waiting)
}

#[tokio::test]
async fn a_connection_that_is_not_made_in_time_says_that_nothing_was_sent() {
    let (listener, _waiting) = full_listener().await;
    let address = listener.local_addr().expect("a bound address");
    let config = TransportConfig { connect_timeout: Duration::from_millis(100), ..TransportConfig::default() };
    let request = post(format!("http://{address}/"), "{}");
    let result = send(&transport_with(config), &request).await;
    assert_eq!(result, error(TransportFault::ConnectTimeout, false));
    let deadline = Instant::now() + Duration::from_millis(100);
    let result = transport().send(&request, &loopback(), LIMIT_BYTES, deadline).await;
    assert_eq!(result, error(TransportFault::Timeout, false));
}

// IBM/mcp-context-forge#1549: idle connections exhaust the provider.
#[tokio::test]
async fn idle_connections_are_few_and_do_not_stay() {
    let open = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&open);
    let gate = Arc::new(tokio::sync::Barrier::new(6));
    let provider = Provider::start(move |_, mut stream| {
        let (open, gate) = (Arc::clone(&counter), Arc::clone(&gate));
        async move {
            open.fetch_add(1, Ordering::SeqCst);
            while read_request(&mut stream).await.is_some() {
                // All six are in flight at once.
                gate.wait().await;
                stream.write_all(OK).await.expect("the client reads");
            }
            open.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    let config =
        TransportConfig { idle_per_host: 2, idle_for: Duration::from_millis(200), ..TransportConfig::default() };
    let transport = transport_with(config);
    let request = get(provider.url("/"));
    let results = futures_util::future::join_all((0..6).map(|_| send(&transport, &request))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(transport.idle_connections() <= 2);
    // Nobody calls again: they are closed all the same.
    eventually("the idle connections are closed", || open.load(Ordering::SeqCst) == 0).await;
    assert_eq!(transport.idle_connections(), 0);
}

#[tokio::test]
async fn a_worn_connection_is_replaced() {
    let provider = Provider::answering(OK).await;
    let config = TransportConfig { connection_lifetime: Duration::ZERO, ..TransportConfig::default() };
    let transport = transport_with(config);
    for _ in 0..3 {
        assert_eq!(send(&transport, &get(provider.url("/"))).await, answer(200, "{}"));
    }
    assert_eq!(provider.connections(), 3);
}

#[tokio::test]
async fn urls_are_remembered_within_a_bound() {
    let (provider, transport) = (Provider::answering(OK).await, transport());
    for number in 0..MAX_TARGETS + 10 {
        transport.inner.target(&provider.url(&format!("/{number}"))).expect("a URL");
        transport.inner.target(&provider.url(&format!("/?{number}"))).expect("a URL");
        assert!(transport.inner.shard().targets.len() <= MAX_TARGETS);
    }
}

/// A provider that sends each body back.
async fn echoing() -> Provider {
    Provider::start(|_, mut stream| async move {
        while let Some(request) = read_request(&mut stream).await {
            let text = String::from_utf8(request).expect("text");
            let body = text.split_once("\r\n\r\n").expect("a head").1;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.expect("the client reads");
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_on_many_threads_get_each_its_own_answer() {
    let provider = echoing().await;
    let transport = transport();
    let callers = (0..16).map(|caller| {
        let (transport, url) = (transport.clone(), provider.url("/"));
        tokio::spawn(async move {
            for turn in 0..50 {
                let body = format!("{{\"caller\":{caller},\"turn\":{turn}}}");
                let request = OutboundRequest { body: Bytes::from(body.clone()), ..post(url.clone(), "") };
                assert_eq!(send(&transport, &request).await, answer(200, body));
            }
        })
    });
    for caller in futures_util::future::join_all(callers).await {
        caller.expect("no caller panics");
    }
    let connections = provider.connections();
    assert!(connections < 400, "{connections} connections for 800 requests of 16 callers");
}

#[test]
fn a_connection_whose_runtime_stands_still_or_is_gone_is_not_used() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let servers = runtime();
    let provider = servers.block_on(echoing());
    std::thread::spawn(move || servers.block_on(std::future::pending::<()>()));
    let transport = transport();
    let (first, second) = (runtime(), runtime());
    let request = post(provider.url("/"), "{}");
    for runtime in [&first, &second, &first] {
        assert_eq!(runtime.block_on(send(&transport, &request)), answer(200, "{}"));
    }
    assert_eq!(provider.connections(), 2);
    drop((first, second));
    assert_eq!(runtime().block_on(send(&transport, &request)), answer(200, "{}"));
}

#[test]
fn a_request_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let transport = transport();
    is_send(&transport.send(&get("http://127.0.0.1/"), &loopback(), 1, Instant::now()));
}
