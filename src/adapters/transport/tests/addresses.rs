//! Which addresses are called, and which never.

use super::*;
use std::collections::VecDeque;

fn scripted(answers: &[&[SocketAddr]]) -> HttpTransport {
    let answers: VecDeque<Vec<SocketAddr>> = answers.iter().map(|addresses| addresses.to_vec()).collect();
    let resolver = Resolver::Scripted(Mutex::new(answers));
    HttpTransport::with_resolver(TransportConfig::default(), Arc::new(OwnListeners::default()), resolver)
        .expect("the defaults are good")
}

#[tokio::test]
async fn loopback_is_refused_unless_it_is_allowed() {
    let provider = Provider::answering(OK).await;
    let request = get(provider.url("/"));
    let transport = transport();
    let nothing = EgressPolicy::default();
    assert_eq!(send_as(&transport, &request, &nothing).await, error(TransportFault::BlockedAddress, false));
    assert_eq!(
        send_as(&transport, &request, &allowing("10.0.0.0/8")).await,
        error(TransportFault::BlockedAddress, false)
    );
    assert_eq!(provider.connections(), 0);
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
}

// modelcontextprotocol/servers#4838: metadata and inner addresses, also in disguise.
#[tokio::test]
async fn inner_addresses_are_refused_in_every_spelling() {
    let transport = transport();
    for host in [
        "169.254.169.254",
        "10.0.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[fd00:ec2::254]",
        "localhost",
        "a.localhost",
    ] {
        for scheme in ["http", "https"] {
            let request = get(format!("{scheme}://{host}/"));
            let result = send_as(&transport, &request, &EgressPolicy::default()).await;
            assert_eq!(result, error(TransportFault::BlockedAddress, false), "{scheme}://{host}/");
        }
    }
}

#[tokio::test]
async fn plain_http_to_a_public_address_is_refused() {
    let result = send_as(&transport(), &get("http://8.8.8.8/"), &EgressPolicy::default()).await;
    assert_eq!(result, error(TransportFault::BlockedAddress, false));
}

#[tokio::test]
async fn what_is_no_url_is_said_to_be_none() {
    for url in ["", "weather", "ftp://127.0.0.1/", "http://user:word@127.0.0.1/"] {
        assert_eq!(send(&transport(), &get(url)).await, error(TransportFault::BadUrl, false), "{url}");
    }
}

// psd401/aistudio#791: a name that answers with another address the second time.
#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_called() {
    let provider = Provider::answering(OK).await;
    let inner = SocketAddr::new("169.254.169.254".parse().expect("an address"), provider.address.port());
    let transport = scripted(&[&[provider.address], &[inner]]);
    let request = get(format!("http://api.test:{}/", provider.address.port()));
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
    assert_eq!(provider.connections(), 1);
    // The next look-up is checked like the first.
    let other = get(format!("http://other.test:{}/", provider.address.port()));
    assert_eq!(send(&transport, &other).await, error(TransportFault::BlockedAddress, false));
    assert_eq!(send(&transport, &other).await, error(TransportFault::Unresolvable, false));
}

#[tokio::test]
async fn a_name_with_one_refused_address_is_refused() {
    let provider = Provider::answering(OK).await;
    let inner = SocketAddr::new("10.0.0.1".parse().expect("an address"), provider.address.port());
    let transport = scripted(&[&[provider.address, inner]]);
    let request = get(format!("http://api.test:{}/", provider.address.port()));
    assert_eq!(send(&transport, &request).await, error(TransportFault::BlockedAddress, false));
    assert_eq!(provider.connections(), 0);
}

#[tokio::test]
async fn every_checked_address_is_tried_before_giving_up() {
    let provider = Provider::answering(OK).await;
    let silent = SocketAddr::new("127.0.0.2".parse().expect("an address"), 1);
    let transport = scripted(&[&[silent, provider.address]]);
    assert_eq!(send(&transport, &get("http://api.test/")).await, answer(200, "{}"));
}

#[tokio::test]
async fn localhost_is_whichever_loopback_address_is_allowed() {
    let provider = Provider::answering(OK).await;
    let request = get(format!("http://localhost:{}/", provider.address.port()));
    assert_eq!(send(&transport(), &request).await, answer(200, "{}"));
}

#[tokio::test]
async fn toolgates_own_listeners_are_never_called() {
    let provider = Provider::answering(OK).await;
    let own = Arc::new(OwnListeners::default());
    let transport = HttpTransport::new(TransportConfig::default(), Arc::clone(&own)).expect("the defaults are good");
    let request = get(provider.url("/"));
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
    assert_eq!(transport.idle_connections(), 1);
    // Learnt after the connection was pooled: the connection is not used either.
    own.add(SocketAddr::new("0.0.0.0".parse().expect("an address"), provider.address.port()));
    let everywhere =
        EgressPolicy { allow: vec!["0.0.0.0/0".parse().expect("a network"), "::/0".parse().expect("a network")] };
    for host in ["127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "localhost"] {
        let request = get(format!("http://{host}:{}/", provider.address.port()));
        let result = send_as(&transport, &request, &everywhere).await;
        assert_eq!(result, error(TransportFault::BlockedAddress, false), "{host}");
    }
    assert_eq!(provider.connections(), 1);
    let neighbour = Provider::answering(OK).await;
    assert_eq!(send(&transport, &get(neighbour.url("/"))).await, answer(200, "{}"));
}

#[tokio::test]
async fn a_pooled_connection_serves_only_who_may_reach_its_address() {
    let provider = Provider::answering(OK).await;
    let transport = transport();
    let request = get(provider.url("/"));
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
    assert_eq!(transport.idle_connections(), 1);
    let other = send_as(&transport, &request, &EgressPolicy::default()).await;
    assert_eq!(other, error(TransportFault::BlockedAddress, false));
    assert_eq!(transport.idle_connections(), 1);
    assert_eq!(send(&transport, &request).await, answer(200, "{}"));
    assert_eq!(provider.connections(), 1);
}
