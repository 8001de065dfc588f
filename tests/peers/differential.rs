//! What toolgate hands on is what the server said: every answer is had twice, from the server itself and through
//! toolgate, and compared as JSON in which nothing was rounded. Left out is what an era, or each server, says for
//! itself: ids, who the server is, for how long a list may be kept, the type of a result, and the dots of names.

use super::harness::{Gateway, Organization, Upstream, http};
use super::json::Json;
use super::mcp::{ANSWERS_ALL, Answer, Call, Dialogue, Era, Peer};
use std::fmt;

/// Both servers of the tests, each speaking both eras, or only one of them.
const SERVERS: [(&str, &str); 6] = [
    ("upstream.mjs", "both"),
    ("upstream.mjs", "modern"),
    ("upstream.mjs", "legacy"),
    ("awkward.mjs", "both"),
    ("awkward.mjs", "modern"),
    ("awkward.mjs", "legacy"),
];

/// Arguments for those tools of `upstream.mjs` that want some.
const ARGUMENTS: [(&str, &str); 7] = [
    ("test_structured_content", r#"{"city":"Zürich"}"#),
    ("json_schema_2020_12_tool", r#"{"name":"n","contactMethod":"phone","phone":"1","address":{"street":"s"}}"#),
    ("test_custom_header", r#"{"region":"eu","query":"q"}"#),
    ("greet", r#"{"name":"世界 🦀"}"#),
    ("slow_compute", r#"{"seconds":0.05}"#),
    ("test_sampling", r#"{"prompt":"Say something"}"#),
    ("test_elicitation", r#"{"message":"Who are you?"}"#),
];

/// What is to become of a tool; see `awkward/cases.mjs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Relayed,
    Hard,
    Fails,
    Refused,
}

/// A tool.
struct Case {
    name: String,
    fate: Fate,
    arguments: Option<String>,
}

impl Case {
    /// The name under which toolgate shows it.
    fn shown_name(&self) -> String {
        self.name.replace('.', "_")
    }

    fn call(&self) -> Call<'_> {
        let headers: &[_] = if self.name == "test_custom_header" { &[("Mcp-Param-Region", "eu")] } else { &[] };
        Call { name: &self.name, arguments: self.arguments.as_deref(), wants_progress: false, headers }
    }

    /// Some tools turn something on, and off again when they are called once more.
    fn turns(&self) -> usize {
        if self.name.starts_with("test_trigger") { 2 } else { 1 }
    }

    fn tells_progress(&self) -> bool {
        self.name == "test_tool_with_progress" || self.name.starts_with("by_sse_notifications")
    }
}

/// What was found.
#[derive(Default)]
struct Findings {
    compared: usize,
    differing: Vec<String>,
}

impl Findings {
    fn compare<T: PartialEq + fmt::Debug>(&mut self, what: &str, direct: &T, through: &T) {
        self.compared += 1;
        if direct != through {
            self.differing.push(format!("{what}\n  direct:  {}\n  through: {}", cut(direct), cut(through)));
        }
    }

    fn hold(&mut self, what: &str, is_so: bool, seen: &impl fmt::Debug) {
        self.compared += 1;
        if !is_so {
            self.differing.push(format!("{what}\n  through: {}", cut(seen)));
        }
    }
}

fn cut(seen: &impl fmt::Debug) -> String {
    let text = format!("{seen:?}");
    let short: String = text.chars().take(1_500).collect();
    if short.len() < text.len() { format!("{short}… ({} bytes)", text.len()) } else { text }
}

/// One server, directly and behind toolgate.
struct Pair {
    what: String,
    upstream: Upstream,
    /// The era toolgate speaks with it, and so do we: the present one if it can.
    era: Era,
    organization: Organization,
    cases: Vec<Case>,
}

impl Pair {
    fn new(gateway: &Gateway, script: &str, speaks: &str) -> Self {
        let upstream = Upstream::start(script, &["--era", speaks]);
        let era = if speaks == "legacy" { Era::Legacy } else { Era::Modern };
        let name = script.trim_end_matches(".mjs");
        let organization = gateway.organization(&format!("{name}-{speaks}"));
        let cases = match name {
            "awkward" => awkward_cases(&upstream, era),
            _ => upstream_cases(&Peer::connect(upstream.url(), None, era, "{}")),
        };
        Self { what: format!("{name} ({speaks})"), upstream, era, organization, cases }
    }

    fn direct(&self, capabilities: &'static str) -> Peer {
        Peer::connect(self.upstream.url(), None, self.era, capabilities)
    }

    fn compare(&self) -> Findings {
        let mut findings = Findings::default();
        let endpoint = self.organization.endpoint(&self.upstream);
        for refused in self.cases.iter().filter(|case| case.fate == Fate::Refused) {
            let skipped = endpoint["skipped"].as_array().map(Vec::as_slice).unwrap_or_default();
            let told = skipped.iter().find(|skipped| skipped["tool"] == refused.name.as_str());
            let has_reason =
                told.is_some_and(|told| told["reason"]["message"].as_str().is_some_and(|why| !why.is_empty()));
            let what = format!("{}: {} is left out, with a reason", self.what, refused.name);
            findings.hold(&what, has_reason, &endpoint["skipped"]);
        }
        let url = format!("{}/mcp", self.organization.base);
        for era in [Era::Modern, Era::Legacy] {
            let through = Peer::connect(&url, Some(&self.organization.agent), era, ANSWERS_ALL);
            // A server of the earlier era asks during a call, which a client of the present one cannot answer.
            let can_be_asked = (era, self.era) != (Era::Modern, Era::Legacy);
            let direct = self.direct(if can_be_asked { ANSWERS_ALL } else { "{}" });
            self.compare_lists(&mut findings, &direct, &through);
            self.compare_calls(&mut findings, &direct, &through);
        }
        self.compare_runs(&mut findings);
        findings
    }

    fn callable(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| case.fate != Fate::Refused)
    }

    fn compare_lists(&self, findings: &mut Findings, direct: &Peer, through: &Peer) {
        let refused = |tool: &Json| {
            let is_it = |case: &Case| tool.get("name") == Some(&Json::text(&case.name));
            self.cases.iter().any(|case| case.fate == Fate::Refused && is_it(case))
        };
        let mut listed: Vec<Json> = direct.list().into_iter().filter(|tool| !refused(tool)).collect();
        for tool in &mut listed {
            let name = tool.get("name").and_then(Json::as_text).expect("a name");
            tool.set("name", Json::text(&name.replace('.', "_")));
            let output = tool.get("outputSchema").and_then(|schema| schema.get("type"));
            if through.era == Era::Legacy && output.is_some_and(|output| *output != Json::text("object")) {
                // The earlier era has no results but objects, and its clients would refuse the whole list.
                tool.remove("outputSchema");
            }
        }
        let by_name = |tool: &Json| tool.get("name").cloned();
        listed.sort_by_key(by_name);
        let mut shown = through.list();
        shown.retain(|tool| tool.get("name") != Some(&Json::text("toolgate_get_run")));
        shown.sort_by_key(by_name);
        findings.compare(
            &format!("{} to a {:?} client: names", self.what, through.era),
            &names(&listed),
            &names(&shown),
        );
        for (listed, shown) in listed.iter().zip(&shown) {
            let name = listed.get("name");
            findings.compare(&format!("{} to a {:?} client: {name:?}", self.what, through.era), listed, shown);
        }
    }

    fn compare_calls(&self, findings: &mut Findings, direct: &Peer, through: &Peer) {
        for case in self.callable() {
            let what = format!("{} for a {:?} client: {}", self.what, through.era, case.name);
            let shown_name = case.shown_name();
            let call = |peer: &Peer, call: Call<'_>| -> Vec<Dialogue> {
                (0..case.turns()).map(|_| normal(peer.call(call))).collect()
            };
            let said = call(direct, case.call());
            let heard = call(through, Call { name: &shown_name, ..case.call() });
            for (said, heard) in said.iter().zip(&heard) {
                judge(findings, &what, case.fate, said, heard);
            }
            if case.tells_progress() {
                let said = direct.call(Call { wants_progress: true, ..case.call() });
                let heard = through.call(Call { name: &shown_name, wants_progress: true, ..case.call() });
                findings.hold(&format!("{what}: there is progress"), !said.progress.is_empty(), &said);
                findings.compare(&format!("{what}: progress"), &said.progress, &heard.progress);
            }
        }
    }

    /// The same tools as runs, the result of which is the whole result of the call.
    fn compare_runs(&self, findings: &mut Findings) {
        let direct = self.direct("{}");
        for case in self.callable() {
            let what = format!("{} as a run: {}", self.what, case.name);
            // A run without arguments is one with empty ones.
            let arguments = case.arguments.as_deref().unwrap_or("{}");
            let call = |_| normal(direct.call(Call { arguments: Some(arguments), ..case.call() }));
            let said: Vec<Dialogue> = (0..case.turns()).map(call).collect();
            for said in &said {
                let run = run(&self.organization, &case.name, arguments);
                let status = run.get("status").and_then(Json::as_text).unwrap_or_default();
                let answer = match run.get("result") {
                    Some(result) => Answer::Result(result.clone()),
                    None => Answer::Error(run.get("error").cloned().unwrap_or(run.clone())),
                };
                let heard = normal(Dialogue { answer, ..Dialogue::default() });
                let expected = if heard.answer.is_failure() { "failed" } else { "completed" };
                findings.hold(&format!("{what}: status"), status == expected, &run);
                judge(findings, &what, case.fate, said, &heard);
            }
        }
    }
}

fn names(tools: &[Json]) -> Vec<Option<&Json>> {
    tools.iter().map(|tool| tool.get("name")).collect()
}

fn awkward_cases(upstream: &Upstream, era: Era) -> Vec<Case> {
    let told = Json::parse(&upstream.told("/__cases")).expect("JSON");
    let era = Json::text(if era == Era::Modern { "modern" } else { "legacy" });
    let cases = told.items().iter().filter(|case| case.get("eras").is_some_and(|eras| eras.items().contains(&era)));
    let case = |case: &Json| Case {
        name: case.get("name").and_then(Json::as_text).expect("a name"),
        fate: match case.get("is").and_then(Json::as_text).as_deref() {
            Some("relayed") => Fate::Relayed,
            Some("hard") => Fate::Hard,
            Some("fails") => Fate::Fails,
            Some("refused") => Fate::Refused,
            other => panic!("{other:?} is no fate"),
        },
        arguments: case.get("arguments").and_then(Json::as_text),
    };
    cases.map(case).collect()
}

fn upstream_cases(direct: &Peer) -> Vec<Case> {
    let case = |tool: &Json| {
        let name = tool.get("name").and_then(Json::as_text).expect("a name");
        let arguments = ARGUMENTS.iter().find(|(tool, _)| *tool == name).map(|(_, arguments)| (*arguments).to_owned());
        Case { name, fate: Fate::Relayed, arguments }
    };
    direct.list().iter().map(case).collect()
}

/// A run of `/mcp/run`, as it was answered.
fn run(organization: &Organization, tool: &str, arguments: &str) -> Json {
    let body = format!(r#"{{"tool":{},"args":{arguments}}}"#, Json::text(tool));
    let request = http().post(format!("{}/mcp/run", organization.base)).header("X-Auth", &organization.agent);
    let mut answer = request.header("Content-Type", "application/json").send(&body).expect("it answers");
    let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().expect("text");
    Json::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Without what an era or a server says for itself.
fn normal(mut dialogue: Dialogue) -> Dialogue {
    for question in &mut dialogue.questions {
        // Empty parameters say no more than none.
        if question.get("params").is_some_and(|params| *params == Json::Object(Vec::new())) {
            question.remove("params");
        }
    }
    // They are asked one after another, or all at once.
    dialogue.questions.sort();
    if let Answer::Result(result) = &mut dialogue.answer {
        result.remove("resultType");
        if let Some(mut meta) = result.remove("_meta") {
            let said_who = meta.remove("io.modelcontextprotocol/serverInfo").is_some();
            if !(said_who && meta.members().is_empty()) {
                result.set("_meta", meta);
            }
        }
    }
    dialogue
}

/// Holds what came through toolgate against what was said.
fn judge(findings: &mut Findings, what: &str, fate: Fate, said: &Dialogue, heard: &Dialogue) {
    match fate {
        Fate::Refused => findings.hold(what, false, heard),
        Fate::Hard => findings.hold(what, said.answer == heard.answer || heard.answer.is_failure(), heard),
        Fate::Fails => findings.hold(what, heard.answer.is_failure() && tells_of(&said.answer, heard), heard),
        // An error of the protocol is not for the client but for the model, or it is about the client and stays one.
        Fate::Relayed => match &said.answer {
            Answer::Error(_) => findings.hold(
                what,
                heard.answer == said.answer || (heard.answer.is_failure() && tells_of(&said.answer, heard)),
                &(said, heard),
            ),
            Answer::Result(_) | Answer::None(_) => findings.compare(what, said, heard),
        },
    }
}

/// Whether the message of an error is handed on.
fn tells_of(said: &Answer, heard: &Dialogue) -> bool {
    let Answer::Error(error) = said else { return true };
    let message = error.get("message").expect("an error has a message").to_string();
    format!("{:?}", heard.answer).contains(message.trim_matches('"'))
}

#[test]
fn what_comes_through_toolgate_is_what_the_server_said() {
    let gateway = Gateway::start();
    let pairs: Vec<Pair> = SERVERS.iter().map(|(script, speaks)| Pair::new(&gateway, script, speaks)).collect();
    let findings: Vec<Findings> = std::thread::scope(|scope| {
        let threads: Vec<_> = pairs.iter().map(|pair| scope.spawn(|| pair.compare())).collect();
        threads.into_iter().map(|thread| thread.join().expect("no server breaks off")).collect()
    });
    let compared: usize = findings.iter().map(|findings| findings.compared).sum();
    let differing: Vec<&String> = findings.iter().flat_map(|findings| &findings.differing).collect();
    for difference in &differing {
        println!("{difference}\n");
    }
    println!("differential: {compared} answers compared, {} differ", differing.len());
    assert!(differing.is_empty() && compared > 1_000, "see above");
}
