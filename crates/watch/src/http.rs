//! GET /metrics, on a thread of its own: a text of OpenMetrics, made when it is asked for. Nothing else is served, nothing is taken in.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use std::time::Duration;

use crate::exposition::Exposition;
use crate::places::{Place, Places, Watched};

/// Serves until the process ends.
///
/// # Errors
/// The listener cannot be waited for.
pub fn serve(
    listener: TcpListener,
    text: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
) -> io::Result<()> {
    serve_up_to(CONNECTIONS_MAX, listener, Arc::new(text))
}

fn serve_up_to(connections: usize, listener: TcpListener, text: Arc<Text>) -> io::Result<()> {
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
        .spawn(move || runtime.block_on(accept(&listener, Places::new(connections), text)))?;
    Ok(())
}

async fn accept(listener: &tokio::net::TcpListener, mut places: Places, text: Arc<Text>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: other connections may end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let place = places.take().await;
        places.serve(
            Arc::clone(&place),
            connection(stream, place, Arc::clone(&text)),
        );
    }
}

/// Answers the requests of one connection.
async fn connection(stream: tokio::net::TcpStream, place: Arc<Place>, text: Arc<Text>) {
    let answer = service_fn(|request| {
        place.answers();
        let response = response(&request, &*text);
        async { Ok::<_, Infallible>(response) }
    });
    let stream = Watched::new(stream, Arc::clone(&place));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // A peer that breaks off or sends nonsense harms only itself.
    let _ = connection.await;
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

/// Connections open at a time. Each takes a descriptor and some 10 KiB; Prometheus needs one.
const CONNECTIONS_MAX: usize = 256;

/// A scraper's connection may idle between two scrapes, a minute apart by default.
const IDLE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    /// A server of a text of this many bytes.
    fn server(connections: usize, bytes: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = move || Ok("x".repeat(bytes - 1) + "\n");
        serve_up_to(connections, listener, Arc::new(text)).unwrap();
        address
    }

    fn connect(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// The number of bytes of the answer after its head.
    fn answer(mut stream: TcpStream) -> usize {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.len()
    }

    const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    #[test]
    fn no_scrape_fails_if_scrapers_are_more_than_places() {
        let address = server(4, 100_000);
        let scrape =
            move || (0..50).for_each(|_| assert_eq!(answer(connect(address, SCRAPE)), 100_000));
        let scrapers: Vec<_> = (0..20).map(|_| std::thread::spawn(scrape)).collect();
        for scraper in scrapers {
            scraper.join().unwrap();
        }
    }

    #[test]
    fn connections_without_a_whole_request_give_way() {
        let address = server(4, 100);
        let idle: Vec<_> = ["", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: a\r\n"]
            .into_iter()
            .cycle()
            .take(9)
            .map(|request| connect(address, request))
            .collect();
        assert_eq!(answer(connect(address, SCRAPE)), 100);
        drop(idle);
    }

    #[test]
    fn a_kept_connection_gives_way_after_its_answer() {
        let address = server(1, 100);
        let mut kept = connect(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        kept.read_exact(&mut [0; 100]).unwrap();
        assert_eq!(answer(connect(address, SCRAPE)), 100);
        // The rest of its answer, and an end that is not a reset.
        kept.read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn an_answer_in_progress_does_not_give_way() {
        // More than the buffers of two sockets.
        let bytes = 64 << 20;
        let address = server(1, bytes);
        let mut slow = connect(address, SCRAPE);
        slow.read_exact(&mut [0; 1]).unwrap();
        let waiting = connect(address, SCRAPE);
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > bytes, "{}", rest.len());
        assert_eq!(answer(waiting), bytes);
    }

    #[test]
    fn an_answer_that_is_not_read_gives_way_at_last() {
        let address = server(1, 64 << 20);
        let unread = connect(address, SCRAPE);
        assert_eq!(answer(connect(address, SCRAPE)), 64 << 20);
        drop(unread);
    }
}
