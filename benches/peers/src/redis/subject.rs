//! Redis in the latency lab: the same wave, over a socket.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{Connection, Pipeline};

use super::server::{self, Server, failed, size};
use super::unix_millis;
use crate::lab::{Contender, Lifetimes, Setup, Subject, Value, resident_bytes_of};

/// Commands that are sent together while filling.
const TOGETHER: usize = 1_000;
/// As long as the lab's values.
const BODY: [u8; size_of::<Value>()] = [1; size_of::<Value>()];
/// Requests a second that round trips leave room for, on a machine of two cores.
const RATE: f64 = 5_000.0;

/// Redis among the contenders, if it is installed.
pub(crate) fn contender() -> Result<Contender, String> {
    let version = server::version(&server::find()?)?;
    let note = format!(
        "{version} over a socket: a call is a round trip, at most {RATE} a second; compare its \
         wave with its own calm. Held is DBSIZE"
    );
    Ok(Contender {
        name: "Redis",
        lifetimes: Lifetimes::PerEntry,
        note: note.leak(),
        most_rate: Some(RATE),
        build,
    })
}

struct Redis {
    calls: Mutex<Calls>,
    /// Whoever looks how many there are does not wait for callers, nor they for it.
    looks: Mutex<Connection>,
    server: Server,
}

struct Calls {
    connection: Connection,
    together: Pipeline,
    waiting: usize,
}

impl Calls {
    fn flush(&mut self) -> Result<(), String> {
        if self.waiting == 0 {
            return Ok(());
        }
        self.waiting = 0;
        let sent = self.together.exec(&mut self.connection);
        self.together.clear();
        sent.map_err(|error| failed(&error))
    }
}

fn build(_setup: &Setup) -> Result<Box<dyn Subject>, String> {
    let server = Server::start()?;
    let calls = Calls {
        connection: server.connect()?,
        together: Pipeline::new(),
        waiting: 0,
    };
    Ok(Box::new(Redis {
        calls: Mutex::new(calls),
        looks: Mutex::new(server.connect()?),
        server,
    }))
}

impl Redis {
    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A measurement without its server is over; the process that waits for it says so.
const GONE: &str = "redis-server answers";

impl Subject for Redis {
    fn get(&self, key: u64) -> bool {
        let mut command = redis::cmd("GET");
        command.arg(&key.to_be_bytes());
        let found: Option<Vec<u8>> = command.query(&mut self.calls().connection).expect(GONE);
        found.is_some()
    }

    fn insert(&self, key: u64, value: Value, lifetime: Duration) {
        drop(value);
        let mut command = redis::cmd("SET");
        command.arg(&key.to_be_bytes()).arg(&BODY);
        command.arg("PX").arg(lifetime.as_millis().max(1) as u64);
        command.exec(&mut self.calls().connection).expect(GONE);
    }

    fn fill(&self, key: u64, value: Value, lifetime: Duration) -> Result<(), String> {
        drop(value);
        // An absolute deadline: the command is sent later.
        let deadline = unix_millis() + lifetime.as_nanos().div_ceil(1_000_000) as u64;
        let mut calls = self.calls();
        let set = calls.together.cmd("SET").arg(&key.to_be_bytes()).arg(&BODY);
        set.arg("PXAT").arg(deadline).ignore();
        calls.waiting += 1;
        if calls.waiting < TOGETHER {
            Ok(())
        } else {
            calls.flush()
        }
    }

    fn settle(&self) {
        self.calls().flush().expect(GONE);
    }

    fn held(&self) -> Option<u64> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        Some(size(&mut looks).expect(GONE))
    }

    fn resident(&self) -> Option<u64> {
        resident_bytes_of(&self.server.process())
    }
}
