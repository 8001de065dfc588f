//! Child processes that end with the bench, and the CPU time they used.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that is killed when the bench is done with it.
pub struct Process(Child);

impl Process {
    /// Starts it with its output thrown away, unless `BENCH_VERBOSE` is set.
    pub fn start(command: &mut Command) -> Self {
        if std::env::var_os("BENCH_VERBOSE").is_none() {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}")))
    }

    /// CPU time of the process and its children so far.
    pub fn cpu(&self) -> Duration {
        let own = self.0.id();
        let mut ticks = cpu_ticks(own).unwrap_or(0);
        for entry in fs::read_dir("/proc").expect("Linux").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if parent_of(pid) == Some(own) {
                ticks += cpu_ticks(pid).unwrap_or(0);
            }
        }
        // USER_HZ is 100 on every Linux architecture that matters here.
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.0.id())).expect("the process lives");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        std::thread::sleep(Duration::from_millis(100));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(") ")?.1;
    Some(after_name.split(' ').map(str::to_owned).collect())
}

fn cpu_ticks(pid: u32) -> Option<u64> {
    let fields = stat_fields(pid)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

/// A port that was free a moment ago.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Waits until something listens there.
pub fn wait_for(address: SocketAddr) {
    let until = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "nothing listens on {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// nginx as a plain reverse proxy with kept-alive connections in front of `upstream`; `None` when it is not installed.
pub fn start_nginx(folder: &Path, listen: SocketAddr, upstream: SocketAddr) -> Option<Process> {
    let binary = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists())?;
    let config = format!(
        "daemon off; worker_processes auto; error_log /dev/null; pid {folder}/nginx.pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};\n\
         fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};\n\
         keepalive_requests 100000000; keepalive_timeout 300s;\n\
         upstream provider {{ server {upstream}; keepalive 128; keepalive_requests 100000000; }}\n\
         server {{ listen {listen}; location / {{ proxy_pass http://provider; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; }} }} }}\n",
        folder = folder.display(),
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, config).expect("the temporary folder is writable");
    let process = Process::start(Command::new(binary).arg("-c").arg(&path).arg("-p").arg(folder));
    wait_for(listen);
    Some(process)
}
