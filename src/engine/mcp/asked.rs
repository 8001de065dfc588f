//! What a server asks while a call goes on. It is answered beside the call: while people think, its answer may come, or
//! the server may take the question back.

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::pin::pin;

/// Questions of one call that are answered at once, and those of them that are put to people: beside these there is
/// always room to refuse one.
const MOST_AT_ONCE: usize = 16;
const MOST_OF_PEOPLE: usize = 8;

/// Questions being answered; dropped, they are not answered any more.
#[derive(Default)]
pub(super) struct Asked<'a> {
    answers: FuturesUnordered<Abortable<BoxFuture<'a, u64>>>,
    open: Vec<Open>,
    next: u64,
}

/// A question that is not answered yet.
struct Open {
    number: u64,
    /// What the server calls it, as JSON.
    id: String,
    answer: AbortHandle,
}

impl<'a> Asked<'a> {
    /// Whether another can be put to people.
    pub(super) fn has_room_for_people(&self) -> bool {
        self.answers.len() < MOST_OF_PEOPLE
    }

    /// Returns when another can be answered.
    pub(super) async fn room(&mut self) {
        while self.answers.len() >= MOST_AT_ONCE {
            self.one().await;
        }
    }

    /// Answers one more.
    pub(super) fn add(&mut self, id: String, answer: impl Future<Output = ()> + Send + 'a) {
        let (handle, registration) = AbortHandle::new_pair();
        let number = self.next;
        self.next += 1;
        self.open.push(Open { number, id, answer: handle });
        let answer = async move {
            answer.await;
            number
        };
        self.answers.push(Abortable::new(Box::pin(answer), registration));
    }

    /// Takes a question back: the parameters of the server's `notifications/cancelled`.
    pub(super) fn take_back(&mut self, params: &RawValue) {
        #[derive(Deserialize)]
        struct Members {
            #[serde(rename = "requestId")]
            id: Box<RawValue>,
        }
        let Ok(said) = serde_json::from_str::<Members>(params.get()) else { return };
        let taken_back = self.open.iter().filter(|question| question.id == said.id.get());
        taken_back.for_each(|question| question.answer.abort());
    }

    /// Goes on answering until `work` is done.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                Some(()) = self.one() => {}
            }
        }
    }

    /// Returns when all is answered.
    pub(super) async fn all(&mut self) {
        while self.one().await.is_some() {}
    }

    /// Returns when one more is answered, or was taken back; `None` when none is open.
    async fn one(&mut self) -> Option<()> {
        let answered = self.answers.next().await?.ok();
        self.open.retain(|question| Some(question.number) != answered && !question.answer.is_aborted());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::JsonText;
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_question_is_answered_beside_the_work_or_taken_back() {
        let is_answered = AtomicBool::new(false);
        let mut asked = Asked::default();
        asked.add("1".to_owned(), async { is_answered.store(true, Ordering::SeqCst) });
        asked.add("\"1\"".to_owned(), std::future::pending());
        assert!(asked.meanwhile(std::future::pending::<()>()).now_or_never().is_none());
        assert!(is_answered.load(Ordering::SeqCst));
        assert_eq!(asked.open.len(), 1, "what is answered is not remembered");
        let other = JsonText::parse(r#"{"requestId":1}"#).expect("JSON");
        asked.take_back(other.raw());
        assert!(asked.all().now_or_never().is_none(), "the other one is open");
        let its = JsonText::parse(r#"{"requestId":"1"}"#).expect("JSON");
        asked.take_back(its.raw());
        assert!(asked.all().now_or_never().is_some());
        assert!(asked.open.is_empty());
    }
}
