//! A redis-server of our own: on a socket in a folder of its own, without persistence.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first redis-server on `PATH`, or why there is none.
pub(super) fn find() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("redis-server"))
        .find(|file| file.is_file())
        .ok_or_else(|| "no redis-server on PATH".to_owned())
}

/// `Redis 8.0.2`, as the program says it.
pub(super) fn version(program: &Path) -> Result<String, String> {
    let said = Command::new(program).arg("--version").output();
    let said = said.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    Ok(format!("Redis {}", version.unwrap_or("of unknown version")))
}

/// Ends, and takes its folder with it, when dropped.
pub(super) struct Server {
    child: Child,
    folder: PathBuf,
    client: Client,
}

impl Server {
    pub(super) fn start() -> Result<Server, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let program = find()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ebbtide-redis-{}-{number}", std::process::id());
        let folder = env::temp_dir().join(name);
        let wrong = |error| format!("cannot make {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(wrong)?;
        let socket = folder.join("socket");
        let child = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--notify-keyspace-events", "Ex", "--loglevel", "warning"])
            .arg("--dir")
            .arg(&folder)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let client = Client::open(format!("redis+unix://{}", socket.display()))
            .map_err(|error| format!("cannot reach redis-server: {error}"))?;
        let mut server = Server {
            child,
            folder,
            client,
        };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let error = match self.connect() {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("redis-server ended at once ({status})"));
            }
            if began.elapsed() > PATIENCE {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn connect(&self) -> Result<Connection, String> {
        let connection = self.client.get_connection();
        connection.map_err(|error| format!("cannot reach redis-server: {error}"))
    }

    /// The process's number.
    pub(super) fn process(&self) -> String {
        self.child.id().to_string()
    }

    /// Processor time that it has used.
    pub(super) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process()));
        let stat = stat.unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // utime and stime, the 14th and 15th field, in 1/100 s.
        let ticks = after_name.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|word| word.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that is worth an orderly end.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("redis-server could not be ended: {error}");
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// Entries held, the expired that have not been found yet included.
pub(super) fn size(connection: &mut Connection) -> Result<u64, String> {
    redis::cmd("DBSIZE")
        .query(connection)
        .map_err(|error| failed(&error))
}

pub(super) fn failed(error: &redis::RedisError) -> String {
    format!("redis-server failed: {error}")
}
