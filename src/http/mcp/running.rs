//! Calls of the earlier era that are under way, so that a client can take one back. Its word is good for its own calls
//! only, and only where it can mean just one of them: without a session two clients of one key may use one id.

use super::channel::CallChannel;
use crate::domain::ids::KeyId;
use dashmap::DashMap;
use std::sync::Arc;

/// Whose call it is, and what its client calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    pub(super) key: KeyId,
    pub(super) session: Option<[u8; 16]>,
    pub(super) caller: Option<String>,
    /// The request's id, as it came.
    pub(super) id: String,
}

/// The calls under way.
#[derive(Default)]
pub(super) struct RunningCalls(DashMap<CallKey, Vec<Arc<CallChannel>>>);

/// One call under way; dropped with it.
pub(super) struct Running {
    calls: Arc<super::McpState>,
    key: CallKey,
    channel: Arc<CallChannel>,
}

impl Running {
    pub(super) fn new(calls: Arc<super::McpState>, key: CallKey, channel: Arc<CallChannel>) -> Self {
        calls.running.0.entry(key.clone()).or_default().push(Arc::clone(&channel));
        Self { calls, key, channel }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.calls.running.0.remove_if_mut(&self.key, |_, channels| {
            channels.retain(|channel| !Arc::ptr_eq(channel, &self.channel));
            channels.is_empty()
        });
    }
}

impl RunningCalls {
    /// Cancels the call this can only mean.
    pub(super) fn cancel(&self, key: &CallKey) {
        let channel = self.0.get(key).and_then(|channels| match channels.as_slice() {
            [only] => Some(Arc::clone(only)),
            _ => None,
        });
        if let Some(channel) = channel {
            channel.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::mcp::caller::McpChannel;
    use crate::http::mcp::McpState;
    use futures_util::FutureExt;
    use uuid::Uuid;

    #[test]
    fn a_call_is_cancelled_when_only_it_can_be_meant() {
        let state = Arc::new(McpState::default());
        let key = |caller: Option<&str>| CallKey {
            key: KeyId::from_uuid(Uuid::nil()),
            session: None,
            caller: caller.map(str::to_owned),
            id: "1".to_owned(),
        };
        let call = |key| {
            let channel = CallChannel::new(None, None);
            (Running::new(Arc::clone(&state), key, Arc::clone(&channel)), channel)
        };
        let is_cancelled = |channel: &CallChannel| channel.cancelled().now_or_never().is_some();
        let (first, one) = call(key(None));
        let (second, two) = call(key(None));
        let (_third, three) = call(key(Some("ann")));
        state.running.cancel(&key(None));
        assert!(!is_cancelled(&one) && !is_cancelled(&two), "either could be meant");
        drop(first);
        state.running.cancel(&key(Some("bob")));
        state.running.cancel(&key(None));
        assert!(is_cancelled(&two) && !is_cancelled(&three));
        drop(second);
        state.running.cancel(&key(Some("ann")));
        assert!(is_cancelled(&three));
        assert_eq!(state.running.0.len(), 1);
    }
}
