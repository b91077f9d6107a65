//! A web server that keeps what a slow backend answers, and never asks it twice for one thing at a time.
//!
//! ```text
//! cargo run --features async --example read_through
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use ebbtide::Cache;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What handlers share.
#[derive(Clone)]
struct App {
    /// `None`: the backend knows no such currency.
    rates: Cache<String, Option<f64>>,
    asked: Arc<AtomicU64>,
}

/// The backend: it takes its time.
async fn ask_the_bank(currency: String, asked: Arc<AtomicU64>) -> Option<f64> {
    asked.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(50)).await;
    match currency.as_str() {
        "EUR" => Some(1.0),
        "SEK" => Some(11.1),
        _ => None,
    }
}

async fn rate(State(app): State<App>, Path(currency): Path<String>) -> Result<String, StatusCode> {
    let load = ask_the_bank(currency.clone(), app.asked);
    // A stale rate is served at once, while a task of its own fetches the new one.
    let spawn = |job| drop(tokio::spawn(job));
    match app.rates.get_or_refresh_async(currency, spawn, load).await {
        Some(rate) => Ok(format!("{rate}\n")),
        None => Err(StatusCode::NOT_FOUND),
    }
}

/// A client with as little as it takes: the status line and the body.
async fn fetch(address: std::net::SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.lines().next().unwrap_or_default();
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok(format!("{status} {}", body.trim_end()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = App {
        rates: Cache::builder()
            .max_entries(10_000)
            .expiry(|_: &String, rate: &Option<f64>| match rate {
                Some(_) => Duration::from_secs(60).into(),
                // What is not there may come.
                None => Duration::from_secs(5).into(),
            })
            .refresh_after(Duration::from_secs(50))
            .lifetime_jitter(0.1)
            .build()?,
        asked: Arc::default(),
    };
    let asked = Arc::clone(&app.asked);
    let router = Router::new()
        .route("/rates/{currency}", get(rate))
        .with_state(app);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });

    let clients: Vec<_> = (0..200)
        .map(|i| {
            tokio::spawn(fetch(
                address,
                ["/rates/EUR", "/rates/SEK", "/rates/XXX"][i % 3],
            ))
        })
        .collect();
    let mut answers = std::collections::BTreeMap::new();
    for client in clients {
        *answers.entry(client.await??).or_insert(0) += 1;
    }
    for (answer, times) in answers {
        println!("{times:4} × {answer}");
    }
    let asked = asked.load(Ordering::Relaxed);
    println!("the backend was asked {asked} times");
    assert_eq!(asked, 3);
    Ok(())
}
