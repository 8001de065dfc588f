//! Which addresses of a host may be called under an organization's policy.
//!
//! **Invariant:** a connection is made to an address that was checked here, never to a name.

use super::own::OwnListeners;
use super::target::{Origin, OriginHost};
use crate::domain::egress::EgressPolicy;
use crate::engine::ports::TransportFault;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Whether a connection to this address may be made. Plain `http` needs the operator's and the organization's word for
/// the very address.
pub(super) fn admits(policy: &EgressPolicy, tls: bool, address: IpAddr) -> bool {
    if tls { policy.permits(address) } else { policy.is_allowed(address) }
}

/// Who turns names into addresses.
pub(super) enum Resolver {
    /// The system's resolver.
    System,
    /// Each look-up takes the next answer; none left is a name that does not resolve.
    #[cfg(test)]
    Scripted(std::sync::Mutex<std::collections::VecDeque<Vec<SocketAddr>>>),
}

impl Resolver {
    async fn look_up(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, TransportFault> {
        match self {
            Resolver::System => {
                let found = tokio::net::lookup_host((name, port)).await;
                Ok(found.map_err(|_| TransportFault::Unresolvable)?.collect())
            }
            #[cfg(test)]
            Resolver::Scripted(answers) => {
                answers.lock().expect("no test panics here").pop_front().ok_or(TransportFault::Unresolvable)
            }
        }
    }
}

/// The addresses to try, in order, all of them checked.
///
/// A name is refused when any of its addresses is: a name that mixes public and inner addresses is either a mistake or
/// an attempt to have the inner one picked. Only `localhost`, which has both loopback addresses by definition and is
/// not asked of a resolver, is cut down to what the policy admits.
pub(super) async fn addresses(
    origin: &Origin,
    resolver: &Resolver,
    policy: &EgressPolicy,
    own: &OwnListeners,
) -> Result<Vec<SocketAddr>, TransportFault> {
    let found = match &origin.host {
        OriginHost::Address(address) => vec![SocketAddr::new(*address, origin.port)],
        OriginHost::Name(_) if origin.is_localhost() => {
            let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            let admitted = both.into_iter().filter(|address| admits(policy, origin.tls, *address));
            let addresses: Vec<_> = admitted.map(|address| SocketAddr::new(address, origin.port)).collect();
            if addresses.is_empty() {
                return Err(TransportFault::BlockedAddress);
            }
            addresses
        }
        OriginHost::Name(name) => resolver.look_up(name, origin.port).await?,
    };
    check(found, origin.tls, policy, own)
}

fn check(
    found: Vec<SocketAddr>,
    tls: bool,
    policy: &EgressPolicy,
    own: &OwnListeners,
) -> Result<Vec<SocketAddr>, TransportFault> {
    if found.is_empty() {
        return Err(TransportFault::Unresolvable);
    }
    if found.iter().any(|address| !admits(policy, tls, address.ip()) || own.covers(*address)) {
        return Err(TransportFault::BlockedAddress);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_texts(found: &[&str], tls: bool, allow: &[&str]) -> Result<usize, TransportFault> {
        let found = found.iter().map(|text| text.parse().expect("an address")).collect();
        let policy = EgressPolicy { allow: allow.iter().map(|net| net.parse().expect("a network")).collect() };
        check(found, tls, &policy, &OwnListeners::default()).map(|addresses| addresses.len())
    }

    // modelcontextprotocol/servers#4838: a name that answers with a public and an inner address.
    #[test]
    fn one_refused_address_refuses_the_name() {
        let mixed = ["8.8.8.8:443", "169.254.169.254:443"];
        assert_eq!(check_texts(&mixed, true, &[]), Err(TransportFault::BlockedAddress));
        assert_eq!(check_texts(&["8.8.8.8:443", "1.1.1.1:443"], true, &[]), Ok(2));
        assert_eq!(check_texts(&[], true, &[]), Err(TransportFault::Unresolvable));
    }

    #[test]
    fn plain_http_needs_the_word_of_the_operator() {
        assert_eq!(check_texts(&["8.8.8.8:80"], false, &[]), Err(TransportFault::BlockedAddress));
        assert_eq!(check_texts(&["8.8.8.8:80"], false, &["8.8.8.0/24"]), Ok(1));
        assert_eq!(check_texts(&["127.0.0.1:80"], false, &["127.0.0.0/8"]), Ok(1));
    }
}
