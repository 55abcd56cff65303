//! GET /metrics, on a thread of its own: a text of OpenMetrics, made when it is asked for. Nothing else is served, nothing is taken in.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use tokio::task::AbortHandle;

use crate::exposition::Exposition;

/// Serves until the process ends.
///
/// # Errors
/// The listener cannot be waited for.
pub fn serve(
    listener: TcpListener,
    text: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
) -> io::Result<()> {
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
        .spawn(move || runtime.block_on(accept(&listener, Arc::new(text))))?;
    Ok(())
}

async fn accept(listener: &tokio::net::TcpListener, text: Arc<Text>) {
    let mut open: Vec<Open> = Vec::new();
    let clock = Arc::new(AtomicU64::new(0));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors: others may close some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        open.retain(|open| !open.task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            // Idle ones shut nobody out: the one that was used longest ago gives way.
            let used = |open: &Open| open.used.load(Ordering::Relaxed);
            let idlest = (0..open.len()).min_by_key(|&index| used(&open[index]));
            let idlest = open.swap_remove(idlest.expect("there are as many as there may be"));
            idlest.task.abort();
        }
        let text = Arc::clone(&text);
        let used = Arc::new(AtomicU64::new(clock.fetch_add(1, Ordering::Relaxed)));
        let (clock, uses) = (Arc::clone(&clock), Arc::clone(&used));
        let task = tokio::spawn(async move {
            let answer = service_fn(|request| {
                uses.store(clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                let response = response(&request, &*text);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // A peer that breaks off, or asks nonsense, is its own affair.
            let _ = connection.await;
        });
        open.push(Open {
            task: task.abort_handle(),
            used,
        });
    }
}

/// A connection that is served.
struct Open {
    task: AbortHandle,
    /// When it was last used, on a clock that ticks with each use of any.
    used: Arc<AtomicU64>,
}

/// What makes the text.
type Text = dyn Fn() -> Result<String, fmt::Error> + Send + Sync;

fn response(request: &Request<Incoming>, make: &Text) -> Response<Full<Bytes>> {
    let mut content_type = "text/plain; charset=utf-8";
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let accept = request.headers().get(ACCEPT);
            match Exposition::asked(accept.map(|value| value.to_str().unwrap_or_default())) {
                None => (
                    StatusCode::NOT_ACCEPTABLE,
                    "there are application/openmetrics-text and text/plain\n".to_string(),
                ),
                Some(exposition) => match make() {
                    Ok(text) => {
                        content_type = exposition.content_type();
                        (StatusCode::OK, exposition.of(text))
                    }
                    Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                },
            }
        }
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "see /metrics\n".to_string()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
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
