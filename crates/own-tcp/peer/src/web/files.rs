//! Files below a directory as answers to HTTP requests.
//!
//! The kernel keeps a path inside the directory (`openat2`, RESOLVE_BENEATH): neither `..` nor a link leads out of it. Files
//! are read as they are sent, by reads that may wait for the disk. A directory without `index.html` is not found. Not here:
//! lists of a directory, ranges, conditional requests.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Directory whose files are served.
pub struct Files {
    root: OwnedFd,
}

impl Files {
    /// Opens the directory that is served.
    ///
    /// # Errors
    /// `path` is not a directory, or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// Answers a request: a file with its length, or a status.
    pub fn answer<B>(&self, request: &Request<B>) -> Response<Content> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = status(StatusCode::METHOD_NOT_ALLOWED);
            let methods = HeaderValue::from_static("GET, HEAD");
            answer.headers_mut().insert(header::ALLOW, methods);
            return answer;
        }
        let Some(path) = decoded(request.uri().path()) else {
            return status(StatusCode::BAD_REQUEST);
        };
        let mut answer = match self.find(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                status(StatusCode::FORBIDDEN)
            }
            Err(_) => status(StatusCode::NOT_FOUND),
        };
        if *request.method() == Method::HEAD {
            // The header keeps the length.
            answer.body_mut().is_head = true;
        }
        answer
    }

    fn find(&self, path: &str) -> io::Result<Response<Content>> {
        let index = format!("{path}index.html");
        let path = if path.ends_with('/') { &index } else { path };
        // NONBLOCK: opening a pipe without a writer must not stop the loop.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(rustix::fs::openat2(
            &self.root,
            path.trim_start_matches('/'),
            flags,
            Mode::empty(),
            inside,
        )?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !metadata.is_file() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut answer = Response::new(Content::of_file(file, metadata.len()));
        set(&mut answer, header::CONTENT_TYPE, kind(path));
        let length = HeaderValue::from(metadata.len());
        answer.headers_mut().insert(header::CONTENT_LENGTH, length);
        Ok(answer)
    }
}

/// Decodes the path of a URL (RFC 3986 §2.1). `None` if it is relative, or is not UTF-8 without NUL.
fn decoded(path: &str) -> Option<String> {
    let bytes = percent_encoding::percent_decode_str(path);
    let path = bytes.decode_utf8().ok()?;
    (path.starts_with('/') && !path.contains('\0')).then(|| path.into_owned())
}

/// Media type by a name's suffix: the types that a browser needs to show a page.
fn kind(name: &str) -> &'static str {
    let (_, end) = name.rsplit_once('.').unwrap_or_default();
    match end.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" => "text/plain; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        _ => "application/octet-stream",
    }
}

/// Answer of one line: the status in words.
fn status(status: StatusCode) -> Response<Content> {
    let mut answer = Response::new(Content::of_text(format!("{status}\n")));
    *answer.status_mut() = status;
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    answer
}

fn set(answer: &mut Response<Content>, name: HeaderName, value: &'static str) {
    let value = HeaderValue::from_static(value);
    answer.headers_mut().insert(name, value);
}

/// Body of an answer: a text, or the unsent part of a file.
pub struct Content {
    bytes: Bytes,
    file: Option<File>,
    from: u64,
    until: u64,
    /// True if only the header is sent.
    is_head: bool,
}

impl Content {
    fn of_text(text: String) -> Self {
        Self {
            bytes: text.into(),
            file: None,
            from: 0,
            until: 0,
            is_head: false,
        }
    }

    fn of_file(file: File, until: u64) -> Self {
        Self {
            bytes: Bytes::new(),
            file: Some(file),
            from: 0,
            until,
            is_head: false,
        }
    }

    fn left(&self) -> u64 {
        self.bytes.len() as u64 + (self.until - self.from)
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_head || self.left() == 0 {
            return Poll::Ready(None);
        }
        let Some(file) = &self.file else {
            let bytes = std::mem::take(&mut self.bytes);
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        };
        let most = usize::try_from(self.until - self.from).unwrap_or(usize::MAX);
        let mut bytes = vec![0; most.min(READ_BYTES)];
        let read = match file.read_at(&mut bytes, self.from) {
            // The file became shorter than the length in the header.
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        };
        Poll::Ready(Some(read.map(|read| {
            bytes.truncate(read);
            self.from += read as u64;
            Frame::data(bytes.into())
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

/// Bytes of one read: a quarter of a send buffer.
const READ_BYTES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_directory_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("sub dir")).unwrap();
        std::fs::write(place.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("sub dir/a%b.txt"), "hello").unwrap();
        std::fs::write(root.join("index.html"), "page").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("far")).unwrap();
        std::os::unix::fs::symlink("sub dir/a%b.txt", root.join("in")).unwrap();
        let files = Files::open(&root).unwrap();
        let answer = |path: &str| {
            let request = Request::builder().uri(path).body(()).unwrap();
            files.answer(&request)
        };
        for (path, bytes) in [
            ("/sub%20dir/a%25b.txt", 5),
            ("/in", 5),
            ("/sub%20dir/../in", 5),
            ("/", 4),
        ] {
            let answer = answer(path);
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            assert_eq!(answer.body().size_hint().exact(), Some(bytes), "{path}");
        }
        for path in [
            "/../secret",
            "/%2e%2e/secret",
            "/out",
            "/far",
            "//etc/passwd",
            "/sub%20dir/../../secret",
            "/sub%20dir",
            "/sub%20dir/",
            "/none",
        ] {
            assert_eq!(answer(path).status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(answer("/a%00b").status(), StatusCode::BAD_REQUEST);
    }
}
