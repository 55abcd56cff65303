//! GET /metrics, on a thread of its own. Nothing else is served, nothing is taken in.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::metrics::Metrics;

/// Serves until the process ends.
///
/// # Errors
/// The listener cannot be waited for.
pub fn serve(listener: TcpListener, metrics: Metrics) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    std::thread::Builder::new()
        .name("metrics".to_string())
        .spawn(move || runtime.block_on(accept(&listener, &metrics)))?;
    Ok(())
}

async fn accept(listener: &tokio::net::TcpListener, metrics: &Metrics) {
    // Each connection holds one: who opens many waits in the listen queue's stead.
    let open = Arc::new(());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) if Arc::strong_count(&open) <= CONNECTIONS_MAX => stream,
            Ok(_) => continue,
            Err(_) => {
                // Out of descriptors: others may close some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (metrics, held) = (metrics.clone(), Arc::clone(&open));
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = response(&request, &metrics);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // A peer that breaks off, or asks nonsense, is its own affair.
            let _ = connection.await;
            drop(held);
        });
    }
}

fn response(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match metrics.text() {
            Ok(text) => (StatusCode::OK, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        },
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "see /metrics\n".to_string()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
    };
    let content_type = match status {
        StatusCode::OK => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, content_type)
        .header(ALLOW, "GET, HEAD");
    response
        .body(Full::from(text))
        .expect("constant headers are valid")
}

/// Prometheus needs one; a few more scrapers may be there.
const CONNECTIONS_MAX: usize = 16;

/// A scraper's connection may idle between two scrapes, a minute apart by default.
const IDLE_MAX: Duration = Duration::from_secs(120);
