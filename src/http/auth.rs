//! Who asks: the key in the headers, and a limit on guessing.

use super::HttpSettings;
use super::error::Problem;
use actix_web::http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const X_AUTH: HeaderName = HeaderName::from_static("x-auth");

/// The one key a request shows, in `X-Auth` or as `Authorization: Bearer`. Two different ones are none: which of them
/// was meant is not for us to choose.
pub(super) fn shown_key(headers: &HeaderMap) -> Option<&str> {
    let plain = headers.get_all(X_AUTH).map(|value| value.to_str().ok());
    let bearer = headers.get_all(AUTHORIZATION).map(|value| value.to_str().ok().and_then(bearer_token));
    let mut keys = plain.chain(bearer);
    let first = keys.next()??;
    keys.all(|key| key == Some(first)).then_some(first)
}

/// The key as a key check takes it; no key is a key that opens nothing.
pub(super) fn key_text(headers: &HeaderMap) -> Result<&str, Problem> {
    shown_key(headers).ok_or_else(Problem::unauthorized)
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// How often the peers that are quiet again are forgotten.
const SWEEP_EVERY: u64 = 1024;

/// Stands for every peer that finds no room of its own.
const OVERFLOW: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// 401s by peer address: a guesser is slowed down, whatever key it shows next.
pub(super) struct PeerLimits {
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    clock: DefaultClock,
    most: usize,
    charged: AtomicU64,
}

impl fmt::Debug for PeerLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerLimits").field("tracked", &self.limiter.len()).finish_non_exhaustive()
    }
}

impl PeerLimits {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let at_least_one = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(settings.unauthorized_per_second))
            .allow_burst(at_least_one(settings.unauthorized_burst));
        Self {
            limiter: RateLimiter::keyed(quota),
            clock: DefaultClock::default(),
            most: settings.peers_tracked,
            charged: AtomicU64::new(0),
        }
    }

    /// Counts one 401; the error is how long to wait when there were too many.
    pub(super) fn charge(&self, peer: Option<IpAddr>) -> Result<(), Duration> {
        if self.charged.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.limiter.retain_recent();
        }
        // `len` may lag behind racing inserts: the bound is for memory, not exact.
        let key = peer.map(network).filter(|_| self.limiter.len() < self.most).unwrap_or(OVERFLOW);
        self.limiter.check_key(&key).map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }
}

/// What one guesser can be expected to own: an IPv4 address, or the /64 an IPv6 address is in.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn one_key_in_either_header_or_the_same_in_both() {
        for (lines, key) in [
            (vec![(X_AUTH, "k")], Some("k")),
            (vec![(AUTHORIZATION, "Bearer k")], Some("k")),
            (vec![(AUTHORIZATION, "bEARER  k ")], Some("k")),
            (vec![(X_AUTH, "k"), (AUTHORIZATION, "Bearer k")], Some("k")),
            (vec![(X_AUTH, "k"), (AUTHORIZATION, "Bearer l")], None),
            (vec![(X_AUTH, "k"), (AUTHORIZATION, "Basic k")], None),
            (vec![(X_AUTH, "k"), (X_AUTH, "l")], None),
            (vec![(AUTHORIZATION, "Basic k")], None),
            (vec![(AUTHORIZATION, "k")], None),
            (vec![], None),
        ] {
            assert_eq!(shown_key(&headers(&lines)), key, "{lines:?}");
        }
    }

    fn limits(peers_tracked: usize) -> PeerLimits {
        let rate =
            HttpSettings { unauthorized_per_second: 1, unauthorized_burst: 2, peers_tracked, ..Default::default() };
        PeerLimits::new(&rate)
    }

    #[test]
    fn one_peer_is_slowed_down_and_another_is_not() {
        let limits = limits(10);
        let guesser = Some(IpAddr::from([192, 0, 2, 1]));
        assert!(limits.charge(guesser).is_ok() && limits.charge(guesser).is_ok());
        assert!(limits.charge(guesser).is_err());
        assert!(limits.charge(Some(IpAddr::from([192, 0, 2, 2]))).is_ok());
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let limits = limits(10);
        for host in 1..=2 {
            assert!(limits.charge(Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]))).is_ok());
        }
        assert!(limits.charge(Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 9, 9, 9, 9]))).is_err());
        assert!(limits.charge(Some(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1]))).is_ok());
    }

    // boinkor-net/governor#171
    #[test]
    fn peers_are_bounded() {
        let limits = limits(3);
        for host in 0..=255 {
            let _ = limits.charge(Some(IpAddr::from([192, 0, 2, host])));
        }
        assert!(limits.limiter.len() <= 4, "{limits:?}");
    }
}
