//! The addresses toolgate itself listens on, which it must never call: a tenant's endpoint must not reach the operator's
//! API from the inside.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// toolgate's own listeners. Filled after binding, when the ports are known, and shared with the transport.
#[derive(Debug, Default)]
pub struct OwnListeners {
    addresses: RwLock<Vec<SocketAddr>>,
    version: AtomicU64,
}

impl OwnListeners {
    /// Adds a listener. Connections that were made before are checked again before they are used.
    pub fn add(&self, listener: SocketAddr) {
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).push(listener);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether a connection to `destination` could end at one of the listeners. A listener on a wildcard address is
    /// reached through every address of this machine.
    pub fn covers(&self, destination: SocketAddr) -> bool {
        let ip = destination.ip().to_canonical();
        let addresses = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
        addresses.iter().filter(|own| own.port() == destination.port()).any(|own| {
            let own_ip = own.ip().to_canonical();
            // Linux takes a connection to 0.0.0.0 or :: as one to itself.
            own_ip == ip || ip.is_unspecified() || (own_ip.is_unspecified() && is_local(ip))
        })
    }

    /// Changes with every [`OwnListeners::add`].
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

/// Whether the address belongs to this machine. The standard library cannot list the interfaces, but only a local
/// address can be bound; nothing is sent. Asked only when the port is one of ours.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(own: &str, destination: &str) -> bool {
        let listeners = OwnListeners::default();
        listeners.add(own.parse().expect("an address"));
        listeners.covers(destination.parse().expect("an address"))
    }

    #[test]
    fn a_listener_covers_its_address_in_every_spelling() {
        assert!(covers("127.0.0.1:8080", "127.0.0.1:8080"));
        assert!(covers("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080"));
        assert!(covers("127.0.0.1:8080", "0.0.0.0:8080"));
        assert!(!covers("127.0.0.1:8080", "127.0.0.1:8081"));
        assert!(!covers("127.0.0.1:8080", "[::1]:8080"));
    }

    #[test]
    fn a_wildcard_listener_covers_every_local_address_and_no_other() {
        for local in ["127.0.0.1:8080", "127.8.9.10:8080", "[::1]:8080", "[::]:8080"] {
            assert!(covers("0.0.0.0:8080", local), "{local}");
            assert!(covers("[::]:8080", local), "{local}");
        }
        assert!(!covers("0.0.0.0:8080", "8.8.8.8:8080"));
        assert!(!covers("0.0.0.0:8080", "127.0.0.1:9000"));
    }
}
