//! The body of an answer that is handed over as it comes, and the connection under it.

use super::target::Target;
use super::{Connection, Inner, exchange};
use crate::engine::ports::{AnswerBody, TransportFault};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;

/// A body that gives its connection back when it has come to its end. Dropped before, it takes the connection with it:
/// hyper closes one whose body and sender are both gone.
pub(super) struct PooledBody {
    inner: Arc<Inner>,
    target: Arc<Target>,
    state: State,
}

enum State {
    Coming { body: Incoming, connection: Connection },
    Ended,
    Broken(TransportFault),
}

impl PooledBody {
    pub(super) fn new(inner: Arc<Inner>, target: Arc<Target>, connection: Connection, body: Incoming) -> Self {
        let mut new = Self { inner, target, state: State::Coming { body, connection } };
        new.end_if_known();
        new
    }

    /// Does not wait to be asked once more where the end was announced: who has all it wants may drop the body then.
    fn end_if_known(&mut self) {
        if matches!(&self.state, State::Coming { body, .. } if body.is_end_stream()) {
            self.end();
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Coming { connection, .. } => self.inner.release(&self.target.origin, connection),
            State::Ended | State::Broken(_) => {}
        }
    }
}

#[async_trait]
impl AnswerBody for PooledBody {
    async fn chunk(&mut self) -> Result<Option<Bytes>, TransportFault> {
        loop {
            let body = match &mut self.state {
                State::Coming { body, .. } => body,
                State::Ended => return Ok(None),
                State::Broken(fault) => return Err(*fault),
            };
            match body.frame().await {
                Some(Ok(frame)) => {
                    let data = frame.into_data().ok().filter(|data| !data.is_empty());
                    self.end_if_known();
                    // Trailers are read over.
                    if data.is_some() {
                        return Ok(data);
                    }
                }
                Some(Err(error)) => {
                    let fault = exchange::fault_of(&error);
                    self.state = State::Broken(fault);
                    return Err(fault);
                }
                None => self.end(),
            }
        }
    }
}
