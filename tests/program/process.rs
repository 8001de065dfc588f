//! Running the program in a process of its own.

use std::net::TcpListener;
use std::process::{Command, Stdio};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_toolgate");

/// A port of loopback that was free just now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A command without the settings of whoever runs the tests.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOOLGATE_")) {
        command.env_remove(name);
    }
    command
}

/// A group of processes that ends with the test, however that ends.
pub(crate) struct ProcessGroup(pub(crate) u32);

impl ProcessGroup {
    /// Sends them a signal.
    pub(crate) fn signal(&self, name: &str) {
        let group = format!("-{}", self.0);
        let _ = Command::new("kill").args([&format!("-{name}"), "--", &group]).stderr(Stdio::null()).status();
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}
