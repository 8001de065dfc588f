//! When a call has to be over. The clock stands still while people are asked: their time is not the server's.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The deadline of one call.
#[derive(Debug)]
pub(super) struct Deadline {
    clock: Mutex<Clock>,
    changed: Notify,
}

#[derive(Debug)]
struct Clock {
    at: Instant,
    /// How many questions are open, and since when there are any.
    questions: usize,
    stands_since: Instant,
}

impl Clock {
    fn at(&self) -> Instant {
        if self.questions == 0 { self.at } else { self.at + self.stands_since.elapsed() }
    }
}

impl Deadline {
    pub(super) fn at(at: Instant) -> Self {
        let clock = Mutex::new(Clock { at, questions: 0, stands_since: at });
        Self { clock, changed: Notify::new() }
    }

    /// The deadline if nobody is asked any more from now on.
    pub(super) fn instant(&self) -> Instant {
        self.lock().at()
    }

    /// Stops the clock as long as the answer lives.
    pub(super) fn pause(&self) -> Paused<'_> {
        let mut clock = self.lock();
        if clock.questions == 0 {
            clock.stands_since = Instant::now();
        }
        clock.questions += 1;
        Paused(self)
    }

    /// Returns when it has passed.
    pub(super) async fn passed(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let (at, stands) = {
                let clock = self.lock();
                (clock.at, clock.questions > 0)
            };
            if stands {
                changed.await;
            } else if at <= Instant::now() {
                return;
            } else {
                tokio::select! {
                    () = sleep_until(at) => {}
                    () = changed => {}
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock stands still.
pub(super) struct Paused<'a>(&'a Deadline);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let mut clock = self.0.lock();
        clock.questions -= 1;
        if clock.questions == 0 {
            let stood = clock.stands_since.elapsed();
            clock.at += stood;
        }
        drop(clock);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_people_does_not_count() {
        let deadline = Deadline::at(Instant::now() + Duration::from_secs(3));
        let mut passed = std::pin::pin!(deadline.passed());
        assert!(passed.as_mut().now_or_never().is_none());
        advance(Duration::from_secs(2)).await;
        let (first, second) = (deadline.pause(), deadline.pause());
        advance(Duration::from_secs(600)).await;
        assert!(passed.as_mut().now_or_never().is_none(), "somebody is being asked");
        drop(first);
        advance(Duration::from_secs(60)).await;
        assert!(passed.as_mut().now_or_never().is_none(), "and somebody else still is");
        assert_eq!(deadline.instant(), Instant::now() + Duration::from_secs(1));
        drop(second);
        assert!(passed.as_mut().now_or_never().is_none());
        advance(Duration::from_secs(1)).await;
        assert!(passed.now_or_never().is_some());
    }
}
