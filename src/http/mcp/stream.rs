//! Answers that come as a stream of events (SSE): what is told before the answer, the answer, and a sign of life now and
//! then, so that nobody between takes a quiet stream for a dead one.

use super::channel::CallChannel;
use super::reply::Reply;
use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderName};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, unfold};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// How often a quiet stream of changes shows that it lives.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often a call under way does: it is by writing that a client's going away is noticed.
const CALL_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A proxy hands each event on as it comes.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A line that says nothing.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": still here\n\n");

/// What becomes of a call: its answer, or nothing when its client took it back.
pub(super) type Going = BoxFuture<'static, Option<Reply>>;

/// One message as an event. A provider's JSON may hold line ends between its tokens, and only there.
pub(super) fn event(message: &str) -> Bytes {
    let line = message.replace(['\n', '\r'], " ");
    Bytes::from(["event: message\ndata: ", &line, "\n\n"].concat())
}

/// 200 with these events.
pub(super) fn respond(events: impl Stream<Item = Bytes> + 'static) -> HttpResponse {
    use futures_util::StreamExt;
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((X_ACCEL_BUFFERING, "no"))
        .streaming(events.map(Ok::<_, Infallible>))
}

/// The beat of a quiet stream.
pub(super) fn beat(every: Duration) -> Interval {
    let mut beat = interval_at(Instant::now() + every, every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

/// A call at work in a task of its own: it keeps its time also while its client reads nothing of it. Dropped, it drops the
/// call.
struct AtWork(JoinHandle<Option<Reply>>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A call whose client reads along. Dropped with the connection, and the call with it.
struct Following {
    id: String,
    /// `None` once it was answered.
    going: Option<AtWork>,
    channel: Arc<CallChannel>,
    beat: Interval,
}

/// Tells a client what there is to tell of its call, and its answer in the end.
pub(super) fn follow(id: String, going: Going, channel: Arc<CallChannel>) -> HttpResponse {
    let going = Some(AtWork(tokio::spawn(going)));
    let following = Following { id, going, channel, beat: beat(CALL_KEEP_ALIVE) };
    respond(unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((event, following))
    }))
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(news) = self.channel.take_news() {
            return Some(event(&news));
        }
        let going = self.going.as_mut()?;
        let reply = tokio::select! {
            biased;
            () = self.channel.has_news() => return self.channel.take_news().map(|news| event(&news)),
            // One that panicked has no answer; its client sees its stream end.
            reply = &mut going.0 => reply.ok().flatten(),
            _ = self.beat.tick() => return Some(COMMENT),
        };
        self.going = None;
        // What was told in the same moment comes before the answer, which is the last.
        let mut last: Vec<u8> = Vec::new();
        while let Some(news) = self.channel.take_news() {
            last.extend_from_slice(&event(&news));
        }
        if let Some(reply) = reply {
            last.extend_from_slice(&event(&reply.message(&self.id)));
        }
        (!last.is_empty()).then(|| last.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn following(going: Going) -> Following {
        let channel = CallChannel::new(Some("1".to_owned()), None);
        let going = Some(AtWork(tokio::spawn(going)));
        Following { id: "7".to_owned(), going, channel, beat: beat(CALL_KEEP_ALIVE) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_that_it_lives_until_it_is_answered() {
        let answer = async {
            tokio::time::sleep(Duration::from_secs(12)).await;
            Some(Reply::Result("{\n}".to_owned()))
        };
        let mut following = following(answer.boxed());
        following.channel.tick(1, "m");
        let progress = following.next().await.expect("progress");
        assert!(
            progress.starts_with(b"event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"")
        );
        assert_eq!(following.next().await, Some(COMMENT));
        assert_eq!(following.next().await, Some(COMMENT));
        let answer = following.next().await.expect("the answer");
        assert_eq!(answer, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{ }}\n\n");
        assert_eq!(following.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_taken_back_is_not_answered() {
        let mut following = following(async { None }.boxed());
        assert_eq!(following.next().await, None);
    }
}
