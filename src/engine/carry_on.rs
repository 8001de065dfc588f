//! Work that is done where it is waited for, and carries on in a task of its own when nobody waits any more.
//!
//! Nearly every client stays for its answer: a task made for each call would be paid for by all of them.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Work that ends whether or not it is waited for. Dropped without a runtime, which is when one ends, it ends there.
pub(super) struct CarryOn<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> CarryOn<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for CarryOn<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out for as long as it works: of work that panics nothing is left to carry on.
        let mut work = self.0.take().expect("a future is not polled after its end");
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for CarryOn<T> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::panic::AssertUnwindSafe;
    use tokio::sync::{mpsc, oneshot};

    /// Work in two steps with a wait between them; tells of each step.
    fn two_steps(told: mpsc::UnboundedSender<u8>, go: oneshot::Receiver<()>) -> CarryOn<u8> {
        CarryOn::new(async move {
            let _ = told.send(1);
            let _ = go.await;
            let _ = told.send(2);
            3
        })
    }

    #[tokio::test]
    async fn who_waits_gets_the_outcome() {
        let (told, mut steps) = mpsc::unbounded_channel();
        let (go, wait) = oneshot::channel();
        let mut work = two_steps(told, wait);
        assert!((&mut work).now_or_never().is_none());
        go.send(()).expect("it waits");
        assert_eq!(work.await, 3);
        assert_eq!((steps.recv().await, steps.recv().await, steps.recv().await), (Some(1), Some(2), None));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_done_all_the_same() {
        let (told, mut steps) = mpsc::unbounded_channel();
        let (go, wait) = oneshot::channel();
        let mut work = two_steps(told, wait);
        assert!((&mut work).now_or_never().is_none());
        drop(work);
        go.send(()).expect("it carries on");
        assert_eq!((steps.recv().await, steps.recv().await, steps.recv().await), (Some(1), Some(2), None));
    }

    #[tokio::test]
    async fn work_that_panicked_is_over() {
        let (told, mut steps) = mpsc::unbounded_channel::<u8>();
        let mut work = CarryOn::<()>::new(async move {
            let _told = told;
            panic!("a bug");
        });
        assert!(AssertUnwindSafe(&mut work).catch_unwind().await.is_err());
        drop(work);
        assert_eq!(steps.recv().await, None, "nothing of it is left");
    }

    #[test]
    fn without_a_runtime_it_ends_with_its_drop() {
        let (told, mut steps) = mpsc::unbounded_channel();
        let (_go, wait) = oneshot::channel();
        drop(two_steps(told, wait));
        assert_eq!(steps.blocking_recv(), None);
    }
}
