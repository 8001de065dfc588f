//! Shows of every rule that it fails where it must, and only there.

use super::{Rule, check};

/// The rules that a text breaks, with their lines.
fn broken(path: &str, text: &str) -> Vec<(Rule, usize)> {
    check(path, text).into_iter().map(|violation| (violation.rule, violation.line)).collect()
}

#[test]
fn arrows_point_one_way() {
    for (path, text) in [
        ("domain/tool.rs", "use crate::dialects::Method;"),
        ("domain/tool.rs", "fn f() { crate::engine::run(); }"),
        ("dialects/median.rs", "use crate::engine::ports::Clock;"),
        ("engine/run.rs", "use crate::adapters::store::Sqlite;"),
        ("engine/run.rs", "use crate::http::error::Problem;"),
        ("engine/run.rs", "use crate::config::Config;"),
        ("adapters/transport/mod.rs", "use crate::http::auth;"),
        ("adapters/transport/mod.rs", "use super::super::http::auth;"),
        ("adapters/store.rs", "use super::super::http::auth;"),
        ("http/mod.rs", "use crate::adapters::store;"),
        ("http/mod.rs", "use super::adapters::store;"),
        ("http/agent/run.rs", "use crate::{engine::run, adapters::{store, metrics}};"),
        ("http/agent/run.rs", "use crate::config::Limits;"),
        ("app.rs", "use crate::main::start;"),
        ("lib.rs", "use crate::domain::tool;"),
    ] {
        assert_eq!(broken(path, text), [(Rule::Arrows, 1)], "{path}: {text}");
    }
    for (path, text) in [
        ("domain/tool.rs", "use super::risk::Risk; use crate::domain::json::JsonText;"),
        ("engine/actors/mod.rs", "use super::org; use super::super::domain::tool;"),
        ("engine/run.rs", "use crate::{dialects, domain::{tool, http::x}};"),
        ("adapters/store/mod.rs", "use crate::engine::ports::{Store, StoreError};"),
        ("http/mod.rs", "// crate::adapters\nconst X: &str = \"crate::adapters::store\"; /* use crate::adapters; */"),
        ("http/mod.rs", "#[cfg(test)]\nmod tests { use crate::adapters::store; }"),
        ("http/tests.rs", "use crate::adapters::store;"),
        ("http/tests/auth.rs", "use crate::adapters::store;"),
        ("app.rs", "use crate::{adapters, http, config};"),
        ("main.rs", "use toolgate::{app, cli};"),
    ] {
        assert_eq!(broken(path, text), [], "{path}: {text}");
    }
}

#[test]
fn main_and_cli_are_read_by_the_name_of_the_library() {
    assert_eq!(broken("engine/run.rs", "\nuse toolgate::http::auth;"), [(Rule::Arrows, 2)]);
}

#[test]
fn a_module_without_a_layer_is_found() {
    assert_eq!(broken("helpers/mod.rs", ""), [(Rule::KnownLayer, 1)]);
}

#[test]
fn crates_stay_at_home() {
    for (path, text) in [
        ("engine/run.rs", "use actix::Addr;"),
        ("http/mod.rs", "use actix::Addr;"),
        ("engine/actors/mod.rs", "use actix_web::web;"),
        ("engine/run.rs", "fn f(c: &rusqlite::Connection) {}"),
        ("adapters/store/mod.rs", "use hyper;"),
        ("adapters/transport/mod.rs", "use prometheus::Registry;"),
        ("http/mod.rs", "use ::{hyper::Uri, bytes::Bytes};"),
        ("adapters/metrics.rs", "use tokio_rustls as tls;"),
        ("adapters/store_other.rs", "extern crate rusqlite;"),
        ("adapters/store/mod.rs", "use ::redis::Client;"),
    ] {
        assert_eq!(broken(path, text), [(Rule::CrateHome, 1)], "{path}: {text}");
    }
    for (path, text) in [
        ("engine/actors/org_actor.rs", "use actix::Addr;"),
        ("app.rs", "fn f() { actix::System::new(); }"),
        ("demo/median.rs", "use actix_web::web;"),
        ("adapters/store/sqlite/mod.rs", "use rusqlite::Connection;"),
        ("adapters/metrics.rs", "use prometheus::Registry;"),
        ("http/metrics.rs", "use crate::engine::prometheus::text; fn hyper() { self.redis(); }"),
    ] {
        assert_eq!(broken(path, text), [], "{path}: {text}");
    }
}

#[test]
fn pure_layers_do_nothing_but_think() {
    for text in [
        "use tokio::sync::Mutex;",
        "async fn f() {}",
        "fn f() { let x = std::time::SystemTime::now(); }",
        "fn f() { let x = std::fs::read(path); }",
    ] {
        assert_eq!(broken("domain/tool.rs", text), [(Rule::PureLayer, 1)], "{text}");
        assert_eq!(broken("dialects/median.rs", text), [(Rule::PureLayer, 1)], "{text}");
        assert_eq!(broken("engine/run.rs", text), [], "{text}");
    }
}

#[test]
fn nothing_is_exported_again_across_layers() {
    for text in [
        "pub use crate::domain::tool::Tool;",
        "pub(crate) use crate::domain::tool::Tool;",
        "pub use super::super::domain::tool::Tool;",
        "pub use crate::{domain::tool::Tool};",
    ] {
        assert_eq!(broken("engine/ports.rs", text), [(Rule::NoReexport, 1)], "{text}");
    }
    assert_eq!(broken("lib.rs", "pub use crate::domain::tool::Tool;").len(), 2);
    for text in
        ["pub use super::store_port::Store;", "pub use crate::engine::run::Run;", "use crate::domain::tool::Tool;"]
    {
        assert_eq!(broken("engine/ports.rs", text), [], "{text}");
    }
    assert_eq!(broken("engine/ports.rs", "pub fn f() {} use crate::domain::tool::Tool;"), []);
}

#[test]
fn files_and_functions_are_short() {
    let file = |lines: usize| "const X: u8 = 1;\n".repeat(lines);
    assert_eq!(broken("engine/run.rs", &file(500)), []);
    assert_eq!(broken("engine/run.rs", &file(501)), [(Rule::FileLength, 1)]);
    assert_eq!(broken("engine/tests.rs", &file(501)), [(Rule::FileLength, 1)]);
    assert_eq!(broken("engine/run.rs", &(file(501) + "// long: a table of the contract\n")), []);
    assert_eq!(broken("engine/run.rs", &(file(501) + "// long: \n")), [(Rule::FileLength, 1)]);
    let function =
        |lines: usize| format!("\nfn f(x: [u8; 4]) -> u8\n{{\n{}}}\nfn g() {{}}\n", "x;\n".repeat(lines - 3));
    assert_eq!(broken("engine/run.rs", &function(70)), []);
    assert_eq!(broken("engine/run.rs", &function(71)), [(Rule::FunctionLength, 2)]);
    let with_brace_in_text = function(71).replacen("x;", "\"}\";", 1);
    assert_eq!(broken("engine/run.rs", &with_brace_in_text), [(Rule::FunctionLength, 2)]);
    let test = format!("#[cfg(test)]\nmod tests {{\n{}}}", function(71));
    assert_eq!(broken("engine/run.rs", &test), [(Rule::FunctionLength, 4)]);
    assert_eq!(broken("engine/run.rs", "trait T { fn f(&self); }"), []);
}

#[test]
fn nothing_is_left_undone_unwrapped_or_printed() {
    let in_function = |body: &str| format!("fn f() {{\n    {body}\n}}\n");
    for (body, rule) in [
        ("x.unwrap();", Rule::NoUnwrap),
        ("x.unwrap_err();", Rule::NoUnwrap),
        ("todo!()", Rule::NoStub),
        ("unimplemented!(\"later\")", Rule::NoStub),
        ("dbg!(x);", Rule::NoStub),
        ("println!();", Rule::NoPrint),
        ("eprint!(\"x\");", Rule::NoPrint),
    ] {
        let text = in_function(body);
        assert_eq!(broken("engine/run.rs", &text), [(rule, 2)], "{body}");
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(broken("engine/run.rs", &in_tests), [], "{body}");
        assert_eq!(broken("engine/tests.rs", &text), [], "{body}");
        assert_eq!(broken("engine/run.rs", &format!("{in_tests}{text}")), [(rule, 8)], "{body}");
    }
    assert_eq!(broken("cli.rs", &in_function("println!();")), []);
    assert_eq!(broken("demo/tour.rs", &in_function("println!();")), []);
    assert_eq!(broken("cli/run.rs", &in_function("dbg!(x);")), [(Rule::NoStub, 2)]);
    assert_eq!(broken("engine/run.rs", &in_function("x.unwrap_or(1); x.unwrap_or_else(f); writeln!(f);")), []);
}

#[test]
fn literals_and_comments_hide_nothing_and_show_nothing() {
    for (text, line) in [
        ("// it's\nfn f<'a>(x: &'a str) { x.unwrap() }", 2),
        ("fn f() { let c = '\"'; x.unwrap(); let d = '\"'; }", 1),
        ("fn f() { let c = '\\''; x.unwrap(); let d = '\\u{1f}'; }", 1),
        ("fn f() { let s = r#\"\"\"#; x.unwrap(); let t = r\"\\\"; }", 1),
        ("fn f() { let s = b\"\\\\\"; x.unwrap(); let t = br##\"\"#\"##; }", 1),
        ("/* /* */ x.unwrap() */ fn f() {\n x.unwrap() }", 2),
        ("#[cfg(test)]\nuse a::{b, c};\nfn f() { x.unwrap() }", 3),
        ("enum E {\n#[cfg(test)]\nA(Vec<(u8, u8)>),\nB }\nfn f() { x.unwrap() }", 5),
        ("#[cfg(test)]\nfn g<A, B>(a: A) -> B { y.unwrap() }\nfn f() { x.unwrap() }", 3),
        ("#[cfg(not(test))]\nfn f() { x.unwrap() }", 2),
    ] {
        assert_eq!(broken("engine/run.rs", text), [(Rule::NoUnwrap, line)], "{text}");
    }
    for text in
        ["const A: &str = \"\n.unwrap() \\\" todo!()\";", "//! x.unwrap()", "const A: &str = r#\"x\".unwrap()\"#;"]
    {
        assert_eq!(broken("engine/run.rs", text), [], "{text}");
    }
}
