//! Outbound addresses: which ones toolgate refuses to call.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What one organization may reach beyond the public internet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Networks allowed although they are not public; these may also be called over plain `http`.
    pub allow: Vec<IpNet>,
}

impl EgressPolicy {
    /// Whether the operator and the organization allow this address by name of its network.
    pub fn is_allowed(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|net| net.contains(&address))
    }

    /// Whether a connection to this address may be made.
    pub fn permits(&self, address: IpAddr) -> bool {
        self.is_allowed(address) || is_public(address)
    }
}

/// Whether the address is an ordinary one of the public internet. Addresses that carry an IPv4 address inside (mapped,
/// compatible, NAT64, 6to4, Teredo) are never public: they would reach what the IPv4 check refuses.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0                                    // "this network"
        || a == 10                              // private
        || a == 127                             // loopback
        || (a == 100 && (64..128).contains(&b)) // CGNAT
        || (a == 169 && b == 254)               // link-local, cloud metadata
        || (a == 172 && (16..32).contains(&b))  // private
        || (a == 192 && b == 168)               // private
        || (a == 192 && b == 0 && (c == 0 || c == 2)) // IETF assignments, documentation
        || (a == 192 && b == 88 && c == 99)     // 6to4 relay
        || (a == 198 && (b == 18 || b == 19))   // benchmarking
        || (a == 198 && b == 51 && c == 100)    // documentation
        || (a == 203 && b == 0 && c == 113)     // documentation
        || a >= 224) // multicast, reserved, broadcast
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Only global unicast 2000::/3 can be public, less its special parts.
    (segments[0] & 0xe000) == 0x2000
        && !(segments[0] == 0x2001 && segments[1] < 0x0200) // IETF assignments with Teredo 2001::/32
        && !(segments[0] == 0x2001 && segments[1] == 0x0db8) // documentation
        && segments[0] != 0x2002 // 6to4
        && !(segments[0] == 0x3fff && segments[1] < 0x1000) // documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_refused_and_public_ones_are_not() {
        for special in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(special.parse().expect("an address")), "{special}");
        }
        for public in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1"] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
    }

    #[test]
    fn an_allowed_network_opens_only_itself() {
        let policy = EgressPolicy { allow: vec!["127.0.0.0/8".parse().expect("a network")] };
        assert!(policy.permits("127.0.0.1".parse().expect("an address")));
        assert!(!policy.permits("10.0.0.1".parse().expect("an address")));
        assert!(!policy.permits("::ffff:127.0.0.1".parse().expect("an address")));
    }
}
