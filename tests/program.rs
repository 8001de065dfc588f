//! The program as its users meet it: the command line, the demo, and the README.

#[path = "program/check.rs"]
mod check;
#[path = "program/client.rs"]
mod client;
#[path = "program/demo.rs"]
mod demo;
#[path = "program/process.rs"]
mod process;
#[path = "program/readme.rs"]
mod readme;
