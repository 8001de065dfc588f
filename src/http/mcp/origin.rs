//! Who may call out of a browser. A page of another site has no business here, whatever name it made itself resolve to
//! (DNS rebinding); a program that is no browser says nothing of its origin.

use actix_web::http::header::{HeaderMap, ORIGIN};
use std::net::{IpAddr, SocketAddr};
use url::{Host, Url};

/// Whether the request may be served: it has no origin, that of the public URL, or one of this very machine where the
/// gateway is reached on it.
pub(super) fn is_ours(headers: &HeaderMap, public_url: &str, listener: SocketAddr) -> bool {
    let public = Url::parse(public_url).ok();
    headers.get_all(ORIGIN).all(|origin| {
        let Some(origin) = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()) else { return false };
        let is_public = public.as_ref().is_some_and(|public| public.origin() == origin.origin());
        let serves_this_machine = || public.as_ref().is_some_and(is_loopback) || is_loopback_address(listener.ip());
        is_public || (is_loopback(&origin) && serves_this_machine())
    })
}

fn is_loopback(url: &Url) -> bool {
    let is_web = matches!(url.scheme(), "http" | "https");
    is_web
        && url.host().is_some_and(|host| match host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => is_loopback_address(address.into()),
            Host::Ipv6(address) => is_loopback_address(address.into()),
        })
}

fn is_loopback_address(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn allowed(origin: &str, public_url: &str, listener: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_str(origin).expect("a header value"));
        is_ours(&headers, public_url, listener.parse().expect("an address"))
    }

    #[test]
    fn a_browser_calls_from_the_public_url_or_from_this_machine() {
        let (public, local) = ("https://gate.example", "http://127.0.0.1:8080");
        assert!(is_ours(&HeaderMap::new(), public, "10.0.0.1:80".parse().expect("an address")));
        assert!(allowed("https://gate.example", public, "10.0.0.1:80"));
        assert!(allowed("https://gate.example:443", public, "10.0.0.1:80"));
        for loopback in ["http://localhost:6274", "http://127.0.0.1", "https://[::1]:9", "http://127.0.0.1:8080"] {
            assert!(allowed(loopback, local, "127.0.0.1:8080"), "{loopback}");
            assert!(allowed(loopback, local, "0.0.0.0:8080"), "{loopback}");
            assert!(!allowed(loopback, public, "10.0.0.1:80"), "{loopback}");
        }
        for foreign in
            ["http://evil.example", "null", "", "http://gate.example", "https://gate.example.evil", "file://localhost"]
        {
            assert!(!allowed(foreign, public, "127.0.0.1:80"), "{foreign}");
        }
        assert!(!allowed("http://localhost.evil.example", local, "127.0.0.1:8080"));
    }
}
