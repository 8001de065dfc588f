//! The way to a client while its call goes on: what it is told of progress, what it is asked, and that it takes its call
//! back.
//!
//! What is told waits in a short queue until the answer's stream takes it. A question is known by an id that nobody can
//! guess, and its answer counts only from the key and the session that were asked.

use super::McpState;
use super::members::{Members, quoted};
use super::tally::Tally;
use crate::domain::ids::KeyId;
use crate::domain::json::JsonText;
use crate::engine::mcp::caller::McpChannel;
use async_trait::async_trait;
use dashmap::DashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Messages of progress that wait for the stream; more are dropped, as the next one says more than they do.
const MOST_PROGRESS: usize = 64;

/// Questions without an answer that one key may have open: each holds its call, and no rate bounds how long people think.
const MOST_QUESTIONS: usize = 256;

/// An answer to a question: a result, or an error.
type Said = Result<JsonText, JsonText>;

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) key: KeyId,
    pub(super) session: [u8; 16],
}

/// Questions that clients have not answered yet.
#[derive(Debug, Default)]
pub(super) struct OpenQuestions {
    by_id: DashMap<String, (Asked, oneshot::Sender<Said>)>,
    by_key: Tally<KeyId>,
}

impl OpenQuestions {
    /// Takes an answer; false when nothing was asked under this id, or somebody else was.
    pub(super) fn answer(&self, id: &str, by: Asked, said: Said) -> bool {
        let Some((_, (_, waiting))) = self.by_id.remove_if(id, |_, (asked, _)| *asked == by) else { return false };
        // Whoever asked may have gone away in this moment.
        let _ = waiting.send(said);
        true
    }
}

/// A question is not open any more when nobody waits for its answer, and its client need not go on asking.
struct Open<'a> {
    channel: &'a CallChannel,
    questions: &'a OpenQuestions,
    id: &'a str,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.questions.by_id.remove(self.id).is_some() {
            let params =
                format!(r#"{{"requestId":{},"reason":"nobody waits for the answer any more"}}"#, quoted(self.id));
            self.channel.push(notification("notifications/cancelled", &params), false);
        }
    }
}

/// How a client can be asked: only on a stream of the earlier era.
pub(super) struct Questioning {
    pub(super) state: Arc<McpState>,
    pub(super) asked: Asked,
    /// How long an answer is waited for.
    pub(super) patience: Duration,
    pub(super) new_id: Box<dyn Fn() -> String + Send + Sync>,
}

/// The way to one client.
pub(super) struct CallChannel {
    /// What the client calls the progress of this call; without it it is told of none.
    progress_token: Option<String>,
    questioning: Option<Questioning>,
    queue: Mutex<VecDeque<String>>,
    news: Notify,
    is_cancelled: AtomicBool,
    cancelled: Notify,
    is_withdrawn: AtomicBool,
    is_replay: AtomicBool,
    /// Nobody reads along, or a question went without an answer: no other is put.
    is_deaf: AtomicBool,
    hung_up: Notify,
    thinking: Mutex<Thinking>,
}

/// The time that people took to answer.
#[derive(Debug, Default)]
struct Thinking {
    /// Questions without an answer so far, and since when there are any.
    open: usize,
    since: Option<Instant>,
    before: Duration,
}

impl Thinking {
    fn so_far(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl CallChannel {
    pub(super) fn new(progress_token: Option<String>, questioning: Option<Questioning>) -> Arc<Self> {
        Arc::new(Self {
            progress_token,
            questioning,
            queue: Mutex::default(),
            news: Notify::new(),
            is_cancelled: AtomicBool::new(false),
            cancelled: Notify::new(),
            is_withdrawn: AtomicBool::new(false),
            is_replay: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            hung_up: Notify::new(),
            thinking: Mutex::default(),
        })
    }

    /// Whether the client wants to hear of progress.
    pub(super) fn tells_progress(&self) -> bool {
        self.progress_token.is_some()
    }

    /// The answer is that of the run that the call's `Idempotency-Key` stands for.
    pub(super) fn mark_replay(&self) {
        self.is_replay.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(super) fn is_replay(&self) -> bool {
        self.is_replay.load(Ordering::Relaxed)
    }

    /// The client has left: what was sent of its call goes on, and nothing else is sent.
    pub(super) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::SeqCst);
    }

    /// The client does not want its call any more.
    pub(super) fn cancel(&self) {
        self.withdraw();
        self.is_cancelled.store(true, Ordering::SeqCst);
        self.cancelled.notify_waiters();
    }

    /// Nobody reads along any more: whatever is asked is asked of nobody.
    pub(super) fn hang_up(&self) {
        self.is_deaf.store(true, Ordering::SeqCst);
        self.hung_up.notify_waiters();
    }

    async fn is_hung_up(&self) {
        until(&self.is_deaf, &self.hung_up).await;
    }

    /// How long people have taken to answer so far: their time is not that of the call.
    pub(super) fn time_of_people(&self) -> Duration {
        self.thinking().so_far()
    }

    fn thinking(&self) -> std::sync::MutexGuard<'_, Thinking> {
        self.thinking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once there is something to tell the client.
    pub(super) async fn has_news(&self) {
        loop {
            let news = self.news.notified();
            if self.has_something() {
                return;
            }
            news.await;
        }
    }

    /// Whether something waits to be told.
    pub(super) fn has_something(&self) -> bool {
        !self.queue().is_empty()
    }

    /// The next message to the client, if there is one.
    pub(super) fn take_news(&self) -> Option<String> {
        self.queue().pop_front()
    }

    /// Tells of progress in a run that is not over yet.
    pub(super) fn tick(&self, progress: u64, message: &str) {
        if let Some(token) = &self.progress_token {
            let params = format!(r#"{{"progressToken":{token},"progress":{progress},"message":{}}}"#, quoted(message));
            self.push(notification("notifications/progress", &params), true);
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: String, may_be_dropped: bool) {
        let mut queue = self.queue();
        if !may_be_dropped || queue.len() < MOST_PROGRESS {
            queue.push_back(message);
            drop(queue);
            self.news.notify_one();
        }
    }
}

/// A question that somebody thinks about.
struct Thought<'a>(&'a CallChannel);

impl<'a> Thought<'a> {
    fn begin(channel: &'a CallChannel) -> Self {
        let mut thinking = channel.thinking();
        thinking.open += 1;
        thinking.since.get_or_insert_with(Instant::now);
        Self(channel)
    }
}

impl Drop for Thought<'_> {
    fn drop(&mut self) {
        let mut thinking = self.0.thinking();
        thinking.open -= 1;
        if thinking.open == 0 {
            thinking.before = thinking.so_far();
            thinking.since = None;
        }
    }
}

/// Returns when this is so; whoever makes it so tells the waiters.
async fn until(is_so: &AtomicBool, told: &Notify) {
    loop {
        let told = told.notified();
        if is_so.load(Ordering::SeqCst) {
            return;
        }
        told.await;
    }
}

/// A notification.
pub(super) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

#[async_trait]
impl McpChannel for CallChannel {
    fn progress(&self, params: &JsonText) {
        let (Some(token), Some(mut params)) = (&self.progress_token, Members::of(params.as_str())) else { return };
        params.set("progressToken", token.clone());
        self.push(notification("notifications/progress", &params.to_text()), true);
    }

    async fn ask(&self, method: &str, params: &JsonText) -> Option<Said> {
        // Who left one question unanswered would be waited for without end by a server that asks again and again.
        let questioning = self.questioning.as_ref().filter(|_| !self.is_deaf.load(Ordering::SeqCst))?;
        let questions = &questioning.state.questions;
        let _counted = questions.by_key.enter(questioning.asked.key, MOST_QUESTIONS)?;
        let _thinking = Thought::begin(self);
        let id = (questioning.new_id)();
        let (waiting, answer) = oneshot::channel();
        questions.by_id.insert(id.clone(), (questioning.asked, waiting));
        let _open = Open { channel: self, questions, id: &id };
        let (id, method) = (quoted(&id), quoted(method));
        let question = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{}}}"#, params.as_str());
        self.push(question, false);
        tokio::select! {
            answer = answer => answer.ok(),
            () = self.cancelled() => None,
            () = self.is_hung_up() => None,
            () = tokio::time::sleep(questioning.patience) => {
                self.hang_up();
                None
            }
        }
    }

    async fn cancelled(&self) {
        until(&self.is_cancelled, &self.cancelled).await;
    }

    fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::pin;
    use uuid::Uuid;

    fn asked(session: u8) -> Asked {
        Asked { key: KeyId::from_uuid(Uuid::nil()), session: [session; 16] }
    }

    fn channel(state: &Arc<McpState>) -> Arc<CallChannel> {
        let (state, new_id) = (Arc::clone(state), Box::new(|| "q-1".to_owned()));
        let questioning = Questioning { state, asked: asked(1), patience: Duration::from_secs(600), new_id };
        CallChannel::new(Some("\"t\"".to_owned()), Some(questioning))
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text).expect("JSON")
    }

    #[tokio::test(start_paused = true)]
    async fn only_whoever_was_asked_answers_and_only_once() {
        let state = Arc::new(McpState::default());
        let channel = channel(&state);
        let params = json(r#"{"message":"?"}"#);
        let asking = channel.ask("elicitation/create", &params);
        tokio::pin!(asking);
        assert!((&mut asking).now_or_never().is_none());
        channel.has_news().await;
        let question = channel.take_news().expect("a question");
        assert_eq!(question, r#"{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"?"}}"#);
        let yes = || Ok(json(r#"{"action":"accept"}"#));
        assert!(!state.questions.answer("q-1", asked(2), yes()), "another session");
        assert!(!state.questions.answer("q-2", asked(1), yes()), "another question");
        assert!(state.questions.answer("q-1", asked(1), yes()));
        assert!(!state.questions.answer("q-1", asked(1), yes()), "once");
        assert_eq!(asking.await, Some(yes()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_ends_with_its_time_or_its_call() {
        let state = Arc::new(McpState::default());
        let channel = channel(&state);
        assert_eq!(channel.ask("m", &json("{}")).await, None, "nobody answered in time");
        assert!(state.questions.by_id.is_empty());
        assert_eq!(channel.time_of_people(), Duration::from_secs(600));
        assert_eq!(channel.ask("m", &json("{}")).now_or_never(), Some(None), "nor is waited for once more");
        let channel = self::channel(&state);
        channel.hang_up();
        assert_eq!(channel.ask("m", &json("{}")).now_or_never(), Some(None), "nobody reads along");
        assert_eq!(channel.take_news(), None);
        let channel = self::channel(&state);
        channel.cancel();
        channel.cancelled().await;
        assert_eq!(channel.ask("m", &json("{}")).now_or_never(), Some(None));
        assert!(state.questions.by_id.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_who_has_gone() {
        let state = Arc::new(McpState::default());
        let channel = channel(&state);
        let params = json("{}");
        let mut asking = pin!(channel.ask("m", &params));
        assert_eq!((&mut asking).now_or_never(), None);
        channel.hang_up();
        assert_eq!(asking.now_or_never(), Some(None));
        assert!(state.questions.by_id.is_empty() && !state.questions.by_key.holds(&asked(1).key));
        assert!(!channel.is_withdrawn(), "the call itself goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_has_so_many_questions_open() {
        let state = Arc::new(McpState::default());
        let key = asked(1).key;
        let open: Vec<_> =
            (0..MOST_QUESTIONS).filter_map(|_| state.questions.by_key.enter(key, MOST_QUESTIONS)).collect();
        let channel = channel(&state);
        assert_eq!(channel.ask("m", &json("{}")).now_or_never(), Some(None), "one too many");
        assert_eq!(channel.take_news(), None);
        drop(open);
        assert_eq!(channel.ask("m", &json("{}")).now_or_never(), None, "there is room again");
        assert!(state.questions.by_id.is_empty() && !state.questions.by_key.holds(&key));
    }

    #[test]
    fn progress_is_told_under_the_clients_own_token_and_never_piles_up() {
        let channel = channel(&Arc::default());
        channel.progress(&json(r#"{"progressToken":7,"progress":0.50,"x":[]}"#));
        let told = channel.take_news().expect("progress");
        let params = r#"{"progressToken":"t","progress":0.50,"x":[]}"#;
        assert_eq!(told, format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#));
        for n in 0..1_000 {
            channel.tick(n, "waiting");
        }
        assert_eq!(std::iter::from_fn(|| channel.take_news()).count(), MOST_PROGRESS);
        let silent = CallChannel::new(None, None);
        silent.tick(1, "waiting");
        assert_eq!(silent.take_news(), None);
    }
}
