//! `subscriptions/listen`: a stream that tells a client when the tools it may call have changed, and how its tasks go.
//!
//! A quiet stream costs one timer and the key it was opened with: nothing of its organization is held but the wish to be
//! told of changes. With each change, and every minute, the key is checked anew; a stream ends with its key.

use super::channel::notification;
use super::members::Members;
use super::reply::Fault;
use super::request::{Capabilities, Request, object};
use super::tally::Counted;
use super::{SERVER_INFO, listing, stream, tasks};
use crate::dialects::mcp::words;
use crate::domain::ids::{OrgId, RunId};
use crate::domain::run::Run;
use crate::domain::secret::Secret;
use crate::engine::Engine;
use crate::engine::access::{AccessFault, AgentAccess};
use crate::engine::settings::MAX_WAIT;
use crate::http::auth::key_text;
use crate::http::call::Call;
use actix_web::HttpResponse;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, unfold};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Interval;

/// Most tasks that one stream tells of.
const MOST_TASKS: usize = 32;

/// Beats of a quiet stream between two looks at its key.
const BEATS_A_LOOK: u32 = 4;

/// A run that is not told of is looked at again so soon.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What is known of the tools that the client was last told of.
type Mark = ([u8; 32], bool);

/// A task that was looked at: as it was then.
type Looked = (RunId, Option<Arc<Run>>);

struct Listening {
    engine: Engine,
    key: Secret,
    /// The request's id, as it came.
    id: String,
    has_tasks: bool,
    /// What the client was last shown, where it wants to be told of the next.
    mark: Option<Mark>,
    changes: watch::Receiver<u64>,
    tasks: FuturesUnordered<BoxFuture<'static, Looked>>,
    beat: Interval,
    beats: u32,
    first: Option<Bytes>,
    is_over: bool,
    _counted: Counted<OrgId>,
}

/// Opens a stream.
pub(super) async fn open(
    call: &Call<AgentAccess>,
    request: &Request<'_>,
    capabilities: &Capabilities,
) -> Result<HttpResponse, Fault> {
    let wanted = object("notifications", request.params.notifications)?
        .and_then(|wanted| Members::of(wanted.get()))
        .ok_or_else(|| Fault::invalid_params("notifications is missing; it says what to be told of"))?;
    let wants_tools = wanted.is("toolsListChanged", "true");
    let ids = match wanted.get("taskIds") {
        None => Vec::new(),
        Some(_) if !capabilities.tasks => return Err(Fault::wants_tasks()),
        Some(ids) => serde_json::from_str::<Vec<String>>(ids.get())
            .map_err(|_| Fault::invalid_params("taskIds is an array of strings"))?,
    };
    let (engine, access) = (call.engine(), &call.access);
    let most = call.state.settings.listen_streams;
    let counted =
        call.state.mcp.streams.enter(access.key().org_id, most).ok_or_else(|| Fault::too_many_streams(most))?;
    let mut own = Vec::new();
    let ids: BTreeSet<RunId> = ids.iter().take(MOST_TASKS).filter_map(|id| id.parse().ok()).collect();
    for id in ids {
        if let Ok(run) = engine.agent_run(access, id, None).await {
            own.push(run);
        }
    }
    let key = key_text(call.headers()).map_err(|problem| Fault::invalid_request(problem.detail().to_owned()))?;
    // Taken before the mark: what changes in between is looked at once more.
    let changes = access.changes();
    let listening = Listening {
        engine: engine.clone(),
        key: Secret::new(key),
        id: request.id.to_owned(),
        has_tasks: capabilities.tasks,
        mark: wants_tools.then(|| listing::mark(access, capabilities.tasks)),
        changes,
        first: Some(acknowledgement(engine, access, request.id, wants_tools, &own)),
        tasks: own.into_iter().map(|run| follow(engine, access, run)).collect(),
        beat: stream::beat(stream::KEEP_ALIVE),
        beats: 0,
        is_over: false,
        _counted: counted,
    };
    Ok(stream::respond(unfold(listening, |mut listening| async move {
        let event = listening.next().await?;
        Some((event, listening))
    })))
}

/// What is honoured, and how each task stands: one that was over before would never be told of again.
fn acknowledgement(engine: &Engine, access: &AgentAccess, id: &str, tools: bool, own: &[Arc<Run>]) -> Bytes {
    let mut honoured = Vec::new();
    if tools {
        honoured.push(r#""toolsListChanged":true"#.to_owned());
    }
    if !own.is_empty() {
        let ids: Vec<String> = own.iter().map(|run| format!("\"{}\"", run.intent.id)).collect();
        honoured.push(format!(r#""taskIds":[{}]"#, ids.join(",")));
    }
    let meta = subscription(id);
    let params = format!(r#"{{{meta},"notifications":{{{}}}}}"#, honoured.join(","));
    let mut events = stream::event(&notification("notifications/subscriptions/acknowledged", &params)).to_vec();
    for run in own {
        events.extend_from_slice(&task_event(engine, access, id, run));
    }
    events.into()
}

fn subscription(id: &str) -> String {
    format!(r#""_meta":{{"{}":{id}}}"#, words::META_SUBSCRIPTION_ID)
}

fn task_event(engine: &Engine, access: &AgentAccess, id: &str, run: &Run) -> Bytes {
    let params = format!(r#"{{{},{}}}"#, subscription(id), tasks::detailed(engine, access, run));
    stream::event(&notification("notifications/tasks", &params))
}

/// Looks until an open task has changed.
fn follow(engine: &Engine, access: &AgentAccess, run: Arc<Run>) -> BoxFuture<'static, Looked> {
    let (engine, access) = (engine.clone(), access.clone());
    Box::pin(async move {
        let (id, seen) = (run.intent.id, run.outcome.status);
        if !seen.is_open() {
            return (id, None);
        }
        loop {
            match engine.agent_run(&access, id, Some(MAX_WAIT)).await {
                Ok(run) if run.outcome.status != seen => return (id, Some(run)),
                Ok(_) => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
                Err(_) => return (id, None),
            }
        }
    })
}

impl Listening {
    /// The next event; none after the last.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.is_over {
            return None;
        }
        loop {
            tokio::select! {
                () = self.engine.stopped() => return Some(self.end()),
                changed = self.changes.changed() => match self.look(changed.is_ok()).await {
                    Look::Ended => return Some(self.end()),
                    Look::Changed => return Some(self.changed()),
                    Look::Same => {}
                },
                Some((_, looked)) = self.tasks.next(), if !self.tasks.is_empty() => {
                    let Some(run) = looked else { continue };
                    let Ok(access) = self.engine.agent_access(self.key.reveal()).await else { return Some(self.end()) };
                    let event = task_event(&self.engine, &access, &self.id, &run);
                    self.tasks.push(follow(&self.engine, &access, run));
                    return Some(event);
                }
                _ = self.beat.tick() => {
                    self.beats += 1;
                    if self.beats.is_multiple_of(BEATS_A_LOOK) {
                        match self.look(true).await {
                            Look::Ended => return Some(self.end()),
                            Look::Changed => return Some(self.changed()),
                            Look::Same => {}
                        }
                    }
                    return Some(stream::COMMENT);
                }
            }
        }
    }

    /// Checks the key, and what it sees.
    async fn look(&mut self, is_told: bool) -> Look {
        let access = match self.engine.agent_access(self.key.reveal()).await {
            Ok(access) => access,
            Err(AccessFault::Unauthorized | AccessFault::Suspended) => return Look::Ended,
            // Never a yes; the stream says nothing until the key can be checked again.
            Err(AccessFault::Store(_)) => {
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
                return Look::Same;
            }
        };
        if !is_told {
            // The organization started anew: what it told before is told no more.
            self.changes = access.changes();
        }
        let Some(mark) = self.mark else { return Look::Same };
        let present = listing::mark(&access, self.has_tasks);
        self.mark = Some(present);
        if mark == present { Look::Same } else { Look::Changed }
    }

    fn changed(&self) -> Bytes {
        let params = format!("{{{}}}", subscription(&self.id));
        stream::event(&notification("notifications/tools/list_changed", &params))
    }

    /// The stream's own answer, which is its last word.
    fn end(&mut self) -> Bytes {
        self.is_over = true;
        let (id, subscription) = (&self.id, words::META_SUBSCRIPTION_ID);
        let server = words::META_SERVER_INFO;
        stream::event(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"{subscription}":{id},"{server}":{SERVER_INFO}}}}}}}"#
        ))
    }
}

/// What a look at the key has found.
enum Look {
    Same,
    Changed,
    Ended,
}
