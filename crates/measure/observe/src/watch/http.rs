//! Serves GET /metrics on a separate thread. It serves nothing else and accepts no data.
//!
//! A page of another site must not read the metrics through a visitor's browser. So a request must name its
//! server by an address, or by a name that cannot be made to point here (DNS rebinding). The text is made
//! once for all requests within [`FRESH`], and the thread takes no more than its [`Budget`] of CPU time.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::watch::budget::Budget;
use crate::watch::exposition;
use crate::watch::places::{Place, Places, Watched};

/// Serves until the process ends. A request is answered if its Host is an address, `localhost`, this host's name, or one
/// of `names`.
///
/// # Errors
/// The listener cannot be waited for.
pub fn serve(
    listener: TcpListener,
    names: Vec<String>,
    text: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
) -> io::Result<()> {
    serve_up_to(CONNECTIONS_MAX, listener, Page::new(names, text))
}

fn serve_up_to(connections: usize, listener: TcpListener, page: Page) -> io::Result<()> {
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
        .spawn(move || {
            runtime.block_on(accept(&listener, Places::new(connections), Arc::new(page)))
        })?;
    Ok(())
}

async fn accept(listener: &tokio::net::TcpListener, mut places: Places, page: Arc<Page>) {
    loop {
        page.wait().await;
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: waits until other connections end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let place = places.take().await;
        places.serve(
            Arc::clone(&place),
            connection(stream, place, Arc::clone(&page)),
        );
    }
}

/// Answers the requests of one connection.
async fn connection(stream: tokio::net::TcpStream, place: Arc<Place>, page: Arc<Page>) {
    let answer = service_fn(|request| {
        place.answers();
        let page = Arc::clone(&page);
        async move {
            page.wait().await;
            Ok::<_, Infallible>(page.response(&request))
        }
    });
    let stream = Watched::new(stream, Arc::clone(&place));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_buf_size(REQUEST_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // A peer that breaks off or sends nonsense harms only itself.
    let _ = connection.await;
}

/// Makes the text.
type Text = dyn Fn() -> Result<String, fmt::Error> + Send + Sync;

/// The text that is served, and the names by which it may be asked for.
struct Page {
    names: Vec<String>,
    make: Box<Text>,
    made: Mutex<Option<Made>>,
    budget: Mutex<Budget>,
}

/// Text and the time when it was made.
struct Made {
    at: Instant,
    text: Bytes,
}

impl Page {
    fn new(
        mut names: Vec<String>,
        make: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
    ) -> Page {
        let own = rustix::system::uname();
        names.extend(own.nodename().to_str().map(str::to_string).ok());
        names.push("localhost".to_string());
        Page {
            names,
            make: Box::new(make),
            made: Mutex::default(),
            budget: Mutex::new(Budget::new(CPU_SHARE, CPU_BURST)),
        }
    }

    /// Waits while this thread exceeds its budget.
    async fn wait(&self) {
        loop {
            let wait = lock(&self.budget).debt(Instant::now(), crate::watch::budget::thread_cpu());
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn response(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let mut content_type = "text/plain; charset=utf-8";
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, text) = match request.uri().path() {
            _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
            _ if !self.is_named_by(request) => (StatusCode::MISDIRECTED_REQUEST, MISDIRECTED),
            "/metrics" => match self.text() {
                Ok(text) => {
                    content_type = exposition::CONTENT_TYPE;
                    (StatusCode::OK, text)
                }
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
            },
            _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"see /metrics\n")),
        };
        let response = Response::builder()
            .status(status)
            .header(CONTENT_TYPE, content_type)
            .header(ALLOW, "GET, HEAD");
        response
            .body(Full::from(text))
            .expect("constant headers are valid")
    }

    /// True if the request names this server by an address or by one of its names. A request without a Host
    /// does not come from a browser.
    fn is_named_by(&self, request: &Request<Incoming>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let is_own = |host: &str| host.is_empty() || self.is_own(host);
        hosts.all(|host| host.to_str().is_ok_and(is_own)) && request.uri().host().is_none_or(is_own)
    }

    /// True if `host`, which may end in a port, is an address or one of our names.
    fn is_own(&self, host: &str) -> bool {
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            _ => host,
        };
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        bare.unwrap_or(name).parse::<IpAddr>().is_ok()
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// The text, at most [`FRESH`] old.
    fn text(&self) -> Result<Bytes, fmt::Error> {
        let mut made = lock(&self.made);
        let made = match &mut *made {
            Some(made) if made.at.elapsed() < FRESH => made,
            old => old.insert(Made {
                at: Instant::now(),
                text: (self.make)()?.into(),
            }),
        };
        Ok(made.text.clone())
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

const MISDIRECTED: Bytes = Bytes::from_static(
    b"this name is not served: ask by address, or start tcpcost with --metrics-host NAME\n",
);

/// Age at which the text is made again. Prometheus asks every 15 s or less often.
const FRESH: Duration = Duration::from_millis(500);

/// Share of one CPU that the thread may take over time, and CPU time that it may take at once.
const CPU_SHARE: f64 = 0.05;
const CPU_BURST: Duration = Duration::from_millis(250);

/// Limits on the bytes of a request's head and on its lines.
const REQUEST_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// Connections open at a time. Each takes a descriptor and some 10 KiB; Prometheus needs one.
const CONNECTIONS_MAX: usize = 256;

/// A scraper's connection may idle between two scrapes, a minute apart by default.
const IDLE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    /// Starts a server whose text has `bytes` bytes.
    fn server(connections: usize, bytes: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = move || Ok("x".repeat(bytes - 1) + "\n");
        serve_up_to(connections, listener, Page::new(Vec::new(), text)).unwrap();
        address
    }

    fn connect(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Number of bytes of the answer after its head.
    fn answer(mut stream: TcpStream) -> usize {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.len()
    }

    const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

    #[test]
    fn only_a_name_that_cannot_be_made_to_point_here_is_answered() {
        let page = Page::new(vec!["web.example".to_string()], || Ok(String::new()));
        let own = [
            "localhost",
            "LOCALHOST:9464",
            "127.0.0.1:9464",
            "[::1]:9464",
            "[::1]",
            "10.0.0.1",
            "web.example:80",
        ];
        for host in own {
            assert!(page.is_own(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:9464",
            "127.0.0.1.evil.example",
            "1::x",
        ] {
            assert!(!page.is_own(host), "{host}");
        }
    }

    #[test]
    fn a_browser_at_a_name_that_was_rebound_reads_nothing() {
        let address = server(4, 100);
        for request in [
            "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        ] {
            let mut answer = String::new();
            connect(address, request)
                .read_to_string(&mut answer)
                .unwrap();
            assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
            assert!(answer.ends_with("--metrics-host NAME\n") && !answer.contains("xx"));
        }
    }

    #[test]
    fn the_text_is_made_once_for_all_who_ask_at_a_time() {
        let made = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&made);
        let page = Page::new(Vec::new(), move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok("# EOF\n".to_string())
        });
        let started = Instant::now();
        for _ in 0..1_000 {
            page.text().unwrap();
        }
        let most = 1 + started.elapsed().as_millis() / FRESH.as_millis();
        assert!(u128::from(made.load(std::sync::atomic::Ordering::Relaxed)) <= most);
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let address = server(4, 100);
        let mut stream = connect(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ");
        // The server may reset the connection during this write.
        let _ = stream.write_all(&vec![b'a'; 2 * REQUEST_MAX]);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(answer_of(address), 100);
    }

    fn answer_of(address: SocketAddr) -> usize {
        answer(connect(address, SCRAPE))
    }

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
        let idle: Vec<_> = [
            "",
            "GET /metr",
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n",
        ]
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
        let mut kept = connect(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        kept.read_exact(&mut [0; 100]).unwrap();
        assert_eq!(answer(connect(address, SCRAPE)), 100);
        // The rest of its answer, and an end that is not a reset.
        kept.read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn an_answer_in_progress_does_not_give_way() {
        // More bytes than the buffers of two sockets hold.
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
