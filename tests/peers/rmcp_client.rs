//! The Rust SDK's client, in both eras. Of its HTTP transports it uses the one over a Unix socket, which brings nothing
//! into the build that toolgate does not have; behind that socket stands toolgate's port.

use super::clients::{ASKING, CONFIRMED, GREET, PROGRESS, Way};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction,
    Implementation, InitializeRequestParams, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ErrorData};
use serde_json::{Value, json};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// What a user did and was told.
#[derive(Default)]
struct Seen {
    questions: Vec<String>,
    progress: Vec<f64>,
}

/// A user who answers every question alike.
#[derive(Clone)]
struct User {
    action: ElicitationAction,
    seen: Arc<Mutex<Seen>>,
}

impl User {
    fn who(action: ElicitationAction) -> Self {
        Self { action, seen: Arc::default() }
    }
}

impl ClientHandler for User {
    fn get_info(&self) -> InitializeRequestParams {
        let capabilities: ClientCapabilities = serde_json::from_value(json!({ "elicitation": {} })).expect("JSON");
        InitializeRequestParams::new(capabilities, Implementation::new("rmcp", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        self.seen.lock().expect("no test panics holding it").questions.push(message);
        let answer = ElicitResult::new(self.action.clone());
        let entered = json!({ "confirm": true, "username": "entered", "email": "entered" });
        Ok(if self.action == ElicitationAction::Accept { answer.with_content(entered) } else { answer })
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.seen.lock().expect("no test panics holding it").progress.push(told.progress);
    }
}

/// A Unix socket behind which a TCP port stands, as with a sidecar.
fn stand_before(way: &Way, folder: &TempDir) -> String {
    let path = folder.path().join("toolgate.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let port = way.organization.base.strip_prefix("http://").expect("a plain URL").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&port).expect("toolgate listens");
            let back = (server.try_clone().expect("a handle"), client.try_clone().expect("a handle"));
            std::thread::spawn(move || forward_up(client, server));
            std::thread::spawn(move || forward_down(back.0, back.1));
        }
    });
    path.to_string_lossy().into_owned()
}

fn forward_up(mut from: UnixStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn forward_down(mut from: TcpStream, mut to: UnixStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

async fn connect(way: &Way, socket: &str, user: User, mode: ClientLifecycleMode) -> RunningService<RoleClient, User> {
    let config = StreamableHttpClientTransportConfig::with_uri(way.gateway.mcp_url());
    let config = config.auth_header(way.organization.agent.clone());
    let transport = StreamableHttpClientTransport::from_unix_socket_with_config(socket, config);
    user.serve_with_lifecycle(transport, mode).await.expect("it connects")
}

async fn call(client: &RunningService<RoleClient, User>, tool: &'static str, arguments: Value) -> (bool, Value) {
    let arguments = arguments.as_object().expect("an object").clone();
    let result: CallToolResult =
        client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await.expect("it is answered");
    (result.is_error == Some(true), serde_json::to_value(&result.content).expect("JSON"))
}

async fn lists_and_calls(way: &Way, socket: &str, mode: &ClientLifecycleMode) {
    let user = User::who(ElicitationAction::Accept);
    let client = connect(way, socket, user.clone(), mode.clone()).await;
    let tools = client.list_all_tools().await.expect("a list");
    assert!([GREET, ASKING, CONFIRMED, PROGRESS].iter().all(|name| tools.iter().any(|tool| tool.name == *name)));
    let (failed, content) = call(&client, GREET, json!({ "name": "世界 🦀" })).await;
    assert_eq!((failed, &content[0]["text"]), (false, &json!("Hello, 世界 🦀!")));
    let (failed, content) = call(&client, ASKING, json!({ "message": "Who are you?" })).await;
    assert!(!failed && content[0]["text"].as_str().is_some_and(|text| text.contains("action=accept")), "{content}");
    let (failed, content) = call(&client, CONFIRMED, json!({})).await;
    assert_eq!((failed, &content[0]["type"]), (false, &json!("image")));
    let (failed, _) = call(&client, PROGRESS, json!({})).await;
    assert!(!failed);
    let seen = std::mem::take(&mut *user.seen.lock().expect("no test panics holding it"));
    assert_eq!((seen.questions.len(), seen.questions[0].as_str()), (2, "Who are you?"), "{:?}", seen.questions);
    assert!(seen.questions[1].contains(CONFIRMED), "{:?}", seen.questions);
    assert_eq!(seen.progress, [0.0, 50.0, 100.0]);
    client.cancel().await.expect("it ends");
}

async fn declines(way: &Way, socket: &str, mode: &ClientLifecycleMode) {
    let user = User::who(ElicitationAction::Decline);
    let client = connect(way, socket, user.clone(), mode.clone()).await;
    let (failed, content) = call(&client, ASKING, json!({ "message": "Who are you?" })).await;
    assert!(!failed && content[0]["text"].as_str().is_some_and(|text| text.contains("action=decline")), "{content}");
    let (failed, _) = call(&client, CONFIRMED, json!({})).await;
    assert!(failed, "nobody confirmed");
    assert_eq!(user.seen.lock().expect("no test panics holding it").questions.len(), 2);
    client.cancel().await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_rust_sdk_lists_calls_and_answers() {
    let folder = TempDir::new().expect("a temporary folder");
    let way = Way::to_a_server_that_speaks("modern");
    let socket = stand_before(&way, &folder);
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for mode in [modern, ClientLifecycleMode::Initialize] {
        lists_and_calls(&way, &socket, &mode).await;
        declines(&way, &socket, &mode).await;
    }
}
