//! A load of plain HTTP/1.1 requests on kept-alive connections.

use super::provider::complete;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a load measured.
pub struct Measured {
    /// Answers with status 200.
    pub answered: u64,
    /// Other answers.
    pub refused: u64,
    /// How long it took.
    pub took: Duration,
    latencies_ns: Vec<u64>,
}

impl Measured {
    /// Answers a second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64()
    }

    /// The latency that this part of the calls stayed below.
    pub fn percentile(&self, part: f64) -> Duration {
        let at = ((self.latencies_ns.len().saturating_sub(1)) as f64 * part) as usize;
        Duration::from_nanos(self.latencies_ns.get(at).copied().unwrap_or_default())
    }
}

/// One request on the wire.
pub fn request(target: SocketAddr, path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// As fast as answers come, on so many connections, for so long.
pub fn closed(target: SocketAddr, request: &[u8], connections: usize, for_long: Duration) -> Measured {
    run(connections, |_| drive(target, request.to_vec(), for_long, None))
}

/// So many calls a second spread over the connections, whatever the answers take: latency counts from when a call was due.
pub fn open(target: SocketAddr, request: &[u8], connections: usize, rate: u32, for_long: Duration) -> Measured {
    let gap = Duration::from_secs(1) * u32::try_from(connections).expect("few connections") / rate;
    run(connections, |n| {
        let offset = gap * u32::try_from(n).expect("few connections") / u32::try_from(connections).expect("few");
        drive(target, request.to_vec(), for_long, Some((gap, offset)))
    })
}

fn run<F>(connections: usize, connection: impl Fn(usize) -> F) -> Measured
where
    F: Future<Output = (u64, u64, Vec<u64>)> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begun = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..connections).map(|n| tokio::spawn(connection(n))).collect();
        let mut measured = Measured { answered: 0, refused: 0, took: Duration::ZERO, latencies_ns: Vec::new() };
        for task in tasks {
            let (answered, refused, latencies) = task.await.expect("no panic");
            measured.answered += answered;
            measured.refused += refused;
            measured.latencies_ns.extend(latencies);
        }
        measured.took = begun.elapsed();
        measured.latencies_ns.sort_unstable();
        measured
    })
}

async fn drive(
    target: SocketAddr,
    request: Vec<u8>,
    for_long: Duration,
    pace: Option<(Duration, Duration)>,
) -> (u64, u64, Vec<u64>) {
    let mut stream = TcpStream::connect(target).await.expect("it listens");
    stream.set_nodelay(true).expect("a TCP option");
    let (mut answered, mut refused, mut latencies) = (0, 0, Vec::with_capacity(1 << 16));
    let mut buffer = Vec::with_capacity(8192);
    let begun = Instant::now();
    let mut due = begun + pace.map_or(Duration::ZERO, |(_, offset)| offset);
    while begun.elapsed() < for_long {
        let from = match pace {
            None => Instant::now(),
            Some((gap, _)) => {
                tokio::time::sleep_until(due.into()).await;
                let from = due;
                due += gap;
                from
            }
        };
        stream.write_all(&request).await.expect("the connection lasts");
        let (head, length) = loop {
            if let Some(found) = complete(&buffer) {
                break found;
            }
            let read = stream.read_buf(&mut buffer).await.expect("the connection lasts");
            assert!(read > 0, "the connection was closed");
        };
        if buffer.starts_with(b"HTTP/1.1 200") {
            answered += 1
        } else {
            refused += 1
        }
        buffer.drain(..head + length);
        latencies.push(u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    (answered, refused, latencies)
}
