//! All pages of a server's tools, in whichever era it speaks.

use super::Server;
use super::deadline::Deadline;
use super::dialogues::{OpeningFault, Party, is_refusal_of_an_era};
use super::exchange::{Heard, Listening, Unheard};
use crate::dialects::mcp::rpc::{self, Message};
use crate::dialects::mcp::{self, Dialogue, Pages, Sign, words};
use crate::domain::manifest::{SyncFault, SyncReason};
use crate::engine::ports::{TransportError, TransportFault};
use tokio::time::Instant;

/// What a server lists.
pub(in crate::engine) struct Listed {
    pub(in crate::engine) pages: Pages,
    /// The revision it was answered in.
    pub(in crate::engine) protocol_version: String,
}

/// Why a server's tools could not be listed.
pub(in crate::engine) enum ListFault {
    /// The exchange failed.
    Failed(TransportError),
    /// The server answered with this status and nothing of the protocol.
    Status(u16),
    /// The server was asked to open a dialogue and knows nothing of that.
    NeverOpens(SyncFault),
    /// Anything else, in words, and the HTTP status it came with.
    Fault(SyncFault, Option<u16>),
}

impl From<Unheard> for ListFault {
    fn from(unheard: Unheard) -> Self {
        match unheard {
            Unheard::Failed(error) => ListFault::Failed(error),
            // Nobody listens to a sync who could take it back.
            Unheard::Cancelled => ListFault::Failed(TransportError { kind: TransportFault::Timeout, bytes_sent: true }),
        }
    }
}

impl From<OpeningFault> for ListFault {
    fn from(fault: OpeningFault) -> Self {
        match fault {
            OpeningFault::Failed(error) => ListFault::Failed(error),
            OpeningFault::Status(status) => ListFault::Status(status),
            OpeningFault::Refused(error) => {
                let fault = rpc::sync_fault("initialize", error.raw());
                if is_refusal_of_an_era(error.raw()) {
                    ListFault::NeverOpens(fault)
                } else {
                    ListFault::Fault(fault, None)
                }
            }
            OpeningFault::Version => ListFault::Fault(unspoken("the one it chose at initialize"), None),
            OpeningFault::Cancelled => ListFault::from(Unheard::Cancelled),
        }
    }
}

fn unspoken(versions: &str) -> SyncFault {
    let ours = [&[words::MODERN_VERSION][..], &words::LEGACY_VERSIONS].concat().join(", ");
    let message = format!("no revision of MCP is spoken by both: here {ours}; by the server {versions}");
    SyncFault::new(SyncReason::UnsupportedVersion, message)
}

impl Server<'_> {
    /// Asks for all tools before `deadline`: in the era that is remembered of the server; where none is, or it has changed,
    /// in the present one first.
    pub(in crate::engine) async fn list(&self, deadline: Instant) -> Result<Listed, ListFault> {
        let known = self.endpoint.sync.protocol_version.as_deref();
        if known.is_some_and(words::is_legacy)
            && let Ok(listed) = self.list_legacy(deadline).await
        {
            return Ok(listed);
        }
        let mut heard = self.list_page(&Dialogue::Modern, None, deadline).await?;
        let mut sign = mcp::sign_of(heard.status, &heard.text);
        if matches!(&sign, Sign::OtherVersions(versions) if versions.iter().any(|v| v == words::MODERN_VERSION)) {
            // It names the very version it was asked in: it may have to be asked twice.
            heard = self.list_page(&Dialogue::Modern, None, deadline).await?;
            sign = mcp::sign_of(heard.status, &heard.text);
        }
        match sign {
            Sign::Modern => self.follow(&Dialogue::Modern, heard, deadline).await,
            Sign::Legacy => match self.list_legacy(deadline).await {
                // It has left the earlier era, or never knew it: what it said first stands.
                Err(ListFault::NeverOpens(_)) => self.follow(&Dialogue::Modern, heard, deadline).await,
                listed => listed,
            },
            Sign::OtherVersions(versions) if versions.iter().any(|v| words::LEGACY_VERSIONS.contains(&v.as_str())) => {
                self.list_legacy(deadline).await
            }
            Sign::OtherVersions(versions) => Err(ListFault::Fault(unspoken(&versions.join(", ")), Some(heard.status))),
            Sign::Refused => match rpc::parse(&heard.text) {
                Some(Message::Response { answer: Err(error), .. }) => {
                    Err(ListFault::Fault(rpc::sync_fault("tools/list", error), Some(heard.status)))
                }
                Some(_) | None => Err(ListFault::Status(heard.status)),
            },
            Sign::Silent => Err(ListFault::Status(heard.status)),
        }
    }

    /// Lists in a session; in a new one when the server has forgotten it.
    async fn list_legacy(&self, deadline: Instant) -> Result<Listed, ListFault> {
        let nobody = Party::default();
        let mut dialogue = self.dialogue(nobody, deadline).await?;
        let mut first = self.list_page(&dialogue, None, deadline).await?;
        if matches!(first.status, 400 | 404) {
            self.forget(nobody, &dialogue, first.status, deadline).await;
            dialogue = self.dialogue(nobody, deadline).await?;
            first = self.list_page(&dialogue, None, deadline).await?;
            if matches!(first.status, 400 | 404) {
                self.forget(nobody, &dialogue, first.status, deadline).await;
            }
        }
        self.follow(&dialogue, first, deadline).await
    }

    /// Follows the cursors from the first page to the last.
    async fn follow(&self, dialogue: &Dialogue, first: Heard, deadline: Instant) -> Result<Listed, ListFault> {
        let (mut pages, mut bytes) = (Pages::default(), 0);
        let mut heard = first;
        loop {
            bytes += heard.text.len();
            if bytes > self.max_answer_bytes {
                return Err(ListFault::Failed(TransportError { kind: TransportFault::TooLarge, bytes_sent: true }));
            }
            let fault = |fault| ListFault::Fault(fault, Some(heard.status));
            let page = match rpc::parse(&heard.text) {
                Some(Message::Response { answer: Ok(result), .. }) => mcp::decode_page(result).map_err(fault)?,
                Some(Message::Response { answer: Err(error), .. }) => {
                    return Err(fault(rpc::sync_fault("tools/list", error)));
                }
                Some(Message::Request { .. } | Message::Notification { .. }) | None if heard.status == 200 => {
                    let message = "the answer to tools/list is no JSON-RPC response";
                    return Err(fault(SyncFault::new(SyncReason::NotJson, message)));
                }
                Some(Message::Request { .. } | Message::Notification { .. }) | None => {
                    return Err(ListFault::Status(heard.status));
                }
            };
            match pages.add(page).map_err(fault)? {
                Some(cursor) => heard = self.list_page(dialogue, Some(&cursor), deadline).await?,
                None => {
                    let protocol_version = dialogue.version().to_owned();
                    return Ok(Listed { pages, protocol_version });
                }
            }
        }
    }

    async fn list_page(&self, dialogue: &Dialogue, cursor: Option<&str>, deadline: Instant) -> Result<Heard, Unheard> {
        let id = self.engine.0.dialogues.next_id();
        let request = mcp::encode_list(&self.endpoint.settings, dialogue, id, cursor);
        let deadline = &Deadline::at(deadline);
        self.ask(&request, &Listening::alone(dialogue, id, deadline)).await
    }
}
