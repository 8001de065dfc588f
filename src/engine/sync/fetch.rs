//! Fetching a manifest: tried again while there is a point in it, and every failure put into words.

use crate::dialects::{self, mcp};
use crate::domain::endpoint::{Endpoint, EndpointSettings};
use crate::domain::manifest::{Manifest, SyncFault, SyncReason};
use crate::domain::org::Org;
use crate::domain::tool::Dialect;
use crate::engine::Engine;
use crate::engine::catalog::egress_policy;
use crate::engine::dispatch;
use crate::engine::dispatch::way::is_connect_fault;
use crate::engine::mcp::Server;
use crate::engine::mcp::list::{ListFault, Listed};
use crate::engine::ports::TransportFault;
use bytes::Bytes;
use tokio::time::Instant;

/// Manifest fetches are tried this often in all.
const FETCH_ATTEMPTS: u32 = 3;

/// What a fetch brought.
pub(super) enum Fetched {
    /// A manifest that its dialect accepted.
    Manifest(Manifest),
    /// The provider says that the set in force is its present one.
    NotModified,
}

impl Engine {
    /// Fetches and checks the manifest, trying again on connect errors and 502/503/504 while the deadline lasts.
    pub(super) async fn fetch_manifest(
        &self,
        org: &Org,
        endpoint: &Endpoint,
    ) -> (Result<Fetched, SyncFault>, Option<u16>) {
        let settings = &endpoint.settings;
        if let Some(inline) = &settings.inline_manifest {
            let body = Bytes::copy_from_slice(inline.as_str().as_bytes());
            return (self.decode(settings, body).await.map(Fetched::Manifest), None);
        }
        if settings.dialect == Dialect::Mcp {
            return self.fetch_tools(org, endpoint).await;
        }
        let egress = egress_policy(org, self.settings());
        let deadline = Instant::now() + self.settings().manifest_fetch_timeout;
        let etag = known_etag(endpoint);
        let mut attempt = 1;
        loop {
            let mut request = dialects::encode_manifest_request(settings, etag);
            dispatch::sign_if_wanted(&mut request, &settings.auth, self.clock().now());
            let transport = &self.0.ports.transport;
            let answer = transport.send(&request, &egress, self.settings().manifest_bytes, deadline).await;
            let may_repeat = match &answer {
                Ok(answer) => matches!(answer.status, 502..=504),
                Err(error) => !error.bytes_sent && is_connect_fault(error.kind),
            };
            if !may_repeat || attempt == FETCH_ATTEMPTS || !self.pause(attempt, deadline).await {
                return match answer {
                    Ok(answer) if answer.status == 304 && etag.is_some() => (Ok(Fetched::NotModified), Some(304)),
                    Ok(answer) => {
                        let checked = self.checked(settings, answer.body, answer.status).await;
                        let tagged = |manifest| Fetched::Manifest(Manifest { etag: answer.etag, ..manifest });
                        (checked.map(tagged), Some(answer.status))
                    }
                    Err(error) => (Err(self.fetch_fault(error.kind)), None),
                };
            }
            attempt += 1;
        }
    }

    /// The manifest of an answer.
    async fn checked(&self, settings: &EndpointSettings, body: Bytes, status: u16) -> Result<Manifest, SyncFault> {
        match status {
            200 => self.decode(settings, body).await,
            status => Err(status_fault(status)),
        }
    }

    /// Lists the tools of an MCP server, trying again like any fetch.
    async fn fetch_tools(&self, org: &Org, endpoint: &Endpoint) -> (Result<Fetched, SyncFault>, Option<u16>) {
        let egress = egress_policy(org, self.settings());
        let deadline = Instant::now() + self.settings().manifest_fetch_timeout;
        let max_answer_bytes = self.settings().manifest_bytes;
        let server = Server { engine: self, org: &org.slug, egress: &egress, endpoint, max_answer_bytes };
        let mut attempt = 1;
        loop {
            let listed = server.list(deadline).await;
            let may_repeat = match &listed {
                Err(ListFault::Failed(error)) => !error.bytes_sent && is_connect_fault(error.kind),
                Err(ListFault::Status(status)) => matches!(status, 502..=504),
                Err(ListFault::NeverOpens(_) | ListFault::Fault(..)) | Ok(_) => false,
            };
            if may_repeat && attempt < FETCH_ATTEMPTS && self.pause(attempt, deadline).await {
                attempt += 1;
                continue;
            }
            return match listed {
                Ok(listed) => {
                    let decoded = self.decode_tools(&endpoint.settings, listed).await;
                    (decoded.map(Fetched::Manifest), Some(200))
                }
                Err(ListFault::Failed(error)) => (Err(self.fetch_fault(error.kind)), None),
                Err(ListFault::Status(status)) => (Err(status_fault(status)), Some(status)),
                Err(ListFault::NeverOpens(fault)) => (Err(fault), None),
                Err(ListFault::Fault(fault, status)) => (Err(fault), status),
            };
        }
    }

    async fn decode_tools(&self, settings: &EndpointSettings, listed: Listed) -> Result<Manifest, SyncFault> {
        let Listed { pages, protocol_version } = listed;
        let settings = settings.clone();
        let manifest = self.check_apart(move || mcp::decode_tools(&settings, pages.as_slice())).await?;
        Ok(Manifest { protocol_version: Some(protocol_version), ..manifest })
    }

    async fn decode(&self, settings: &EndpointSettings, body: Bytes) -> Result<Manifest, SyncFault> {
        let settings = settings.clone();
        self.check_apart(move || dialects::decode_manifest(&settings, &body)).await
    }

    /// Checks a manifest beside the event loops: its schemas are compiled, and a hostile one makes that last. One at a
    /// time, so that whoever sends many of them slows down nothing but syncs.
    async fn check_apart(
        &self,
        check: impl FnOnce() -> Result<Manifest, SyncFault> + Send + 'static,
    ) -> Result<Manifest, SyncFault> {
        let unchecked = || SyncFault::new(SyncReason::BadManifest, "the manifest could not be checked");
        let _one = self.0.decoding.acquire().await.map_err(|_| unchecked())?;
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|_| Err(unchecked()))
    }

    fn fetch_fault(&self, fault: TransportFault) -> SyncFault {
        let seconds = self.settings().manifest_fetch_timeout.as_secs();
        let (reason, message) = match fault {
            TransportFault::BlockedAddress => (
                SyncReason::BlockedAddress,
                "the address is private, reserved or the gateway's own; ask the operator to allow it".to_owned(),
            ),
            TransportFault::Timeout | TransportFault::ConnectTimeout => {
                (SyncReason::Timeout, format!("the provider did not answer within {seconds} s"))
            }
            TransportFault::TooLarge => {
                let limit = self.settings().manifest_bytes;
                (SyncReason::TooLarge, format!("the manifest is larger than {limit} bytes"))
            }
            TransportFault::Malformed => (SyncReason::NotJson, "the answer is not valid HTTP".to_owned()),
            TransportFault::BadUrl
            | TransportFault::Unresolvable
            | TransportFault::ConnectFailed
            | TransportFault::Tls
            | TransportFault::Reset => (SyncReason::Unreachable, format!("the provider cannot be reached: {fault}")),
        };
        SyncFault::new(reason, message)
    }
}

/// What an HTTP status other than 200 says.
fn status_fault(status: u16) -> SyncFault {
    match status {
        401 | 403 => {
            SyncFault::new(SyncReason::Unauthorized, format!("the provider refused the credentials with HTTP {status}"))
        }
        status => SyncFault::new(
            SyncReason::BadStatus,
            format!("the provider answered HTTP {status} where 200 is expected; redirects are not followed"),
        ),
    }
}

/// The entity tag to ask with. Only a set that was read under the present settings, and from which nothing was left out
/// that might fit by now, may be answered with "the same as before".
fn known_etag(endpoint: &Endpoint) -> Option<&str> {
    let sync = &endpoint.sync;
    let in_force = sync.applied_version == Some(endpoint.version) && sync.manifest_hash.is_some();
    sync.manifest_etag.as_deref().filter(|_| in_force && sync.skipped.is_empty())
}
