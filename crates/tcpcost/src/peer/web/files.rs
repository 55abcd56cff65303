//! What is under a directory, as answers to requests: whole files, ranges of them, lists of what there is.
//!
//! The kernel keeps a path inside the directory (`openat2`, RESOLVE_BENEATH): neither `..` nor a link
//! leads out of it. Files are read as they are sent, by reads that may wait for the disk. Not here:
//! several ranges in one answer (RFC 9110 §14.2 lets a server send the whole instead).

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// A directory.
pub struct Files {
    root: OwnedFd,
}

impl Files {
    /// Of this path.
    ///
    /// # Errors
    /// It is no directory, or may not be looked into.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// What a request gets.
    pub fn answer<B>(&self, request: &Request<B>) -> Response<Content> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED);
            set(&mut answer, header::ALLOW, "GET, HEAD");
            return answer;
        }
        let asked = request.uri().path();
        let Some(path) = decoded(asked) else {
            return plain(StatusCode::BAD_REQUEST);
        };
        let mut answer = match self.find(&path) {
            Ok(Found::File(file, metadata)) => {
                whole_or_part(file, &metadata, &path, request.headers())
            }
            Ok(Found::Directory(_)) if !asked.ends_with('/') => {
                let mut answer = plain(StatusCode::MOVED_PERMANENTLY);
                // Relative to what was asked for, so that it leads nowhere else.
                let last = asked.rsplit('/').next().unwrap_or_default();
                set(&mut answer, header::LOCATION, &format!("./{last}/"));
                answer
            }
            Ok(Found::Directory(directory)) => match self.find(&format!("{path}/index.html")) {
                Ok(Found::File(file, metadata)) => {
                    whole_or_part(file, &metadata, "index.html", request.headers())
                }
                _ => list(&directory, asked),
            },
            Err(error) => plain(match error.kind() {
                io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
                _ => StatusCode::NOT_FOUND,
            }),
        };
        if *request.method() == Method::HEAD {
            // The length stays as it is in the header.
            answer.body_mut().is_head = true;
        }
        answer
    }

    fn find(&self, path: &str) -> io::Result<Found> {
        let path = match path.trim_start_matches('/') {
            "" => ".",
            path => path,
        };
        // A pipe without a writer must not stop everything.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(rustix::fs::openat2(
            &self.root,
            path,
            flags,
            Mode::empty(),
            inside,
        )?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            Ok(Found::Directory(file))
        } else if metadata.is_file() {
            Ok(Found::File(file, metadata))
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

enum Found {
    File(File, Metadata),
    Directory(File),
}

/// The path of a URL, percents undone (RFC 3986 §2.1).
fn decoded(path: &str) -> Option<String> {
    let bytes = percent_encoding::percent_decode_str(path);
    let path = bytes.decode_utf8().ok()?;
    (path.starts_with('/') && !path.contains('\0')).then(|| path.into_owned())
}

/// A file, or the part of it that was asked for (RFC 9110 §13, §14).
fn whole_or_part(
    file: File,
    metadata: &Metadata,
    name: &str,
    asked: &HeaderMap,
) -> Response<Content> {
    let bytes = metadata.len();
    let tag = format!(
        "\"{:x}-{:x}-{bytes:x}\"",
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let modified = metadata.modified().ok().map(httpdate::fmt_http_date);
    let word = |name| {
        asked
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let known = match word(header::IF_NONE_MATCH) {
        Some(tags) => tags
            .split(',')
            .any(|one| [tag.as_str(), "*"].contains(&one.trim())),
        None => modified.is_some() && word(header::IF_MODIFIED_SINCE) == modified.as_deref(),
    };
    let same = word(header::IF_RANGE)
        .is_none_or(|known| known == tag || Some(known) == modified.as_deref());
    let range = word(header::RANGE)
        .filter(|_| same)
        .map(|text| range(text, bytes));
    let (status, from, until) = match range {
        _ if known => (StatusCode::NOT_MODIFIED, 0, 0),
        None | Some(Range::Whole) => (StatusCode::OK, 0, bytes),
        Some(Range::Part(from, until)) => (StatusCode::PARTIAL_CONTENT, from, until),
        Some(Range::Nothing) => {
            let mut answer = plain(StatusCode::RANGE_NOT_SATISFIABLE);
            set(
                &mut answer,
                header::CONTENT_RANGE,
                &format!("bytes */{bytes}"),
            );
            return answer;
        }
    };
    let mut answer = Response::new(Content::of_file(file, from, until));
    *answer.status_mut() = status;
    set(&mut answer, header::ETAG, &tag);
    set(&mut answer, header::ACCEPT_RANGES, "bytes");
    if let Some(modified) = modified {
        set(&mut answer, header::LAST_MODIFIED, &modified);
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{bytes}", until - 1);
        set(&mut answer, header::CONTENT_RANGE, &range);
    }
    if !known {
        set(&mut answer, header::CONTENT_TYPE, kind(name));
        set(
            &mut answer,
            header::CONTENT_LENGTH,
            &(until - from).to_string(),
        );
    }
    answer
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// What was asked for is not one range of bytes: the whole is an answer, too.
    Whole,
    /// From the first byte until before the second.
    Part(u64, u64),
    /// Nothing of it is in the file.
    Nothing,
}

/// RFC 9110 §14.1.2, of a file of so many bytes.
fn range(text: &str, bytes: u64) -> Range {
    let parse = || {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        Some(match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if last < first => return None,
            (Ok(first), Ok(last)) => (first, last.saturating_add(1).min(bytes)),
            (Ok(first), Err(_)) if last.is_empty() => (first, bytes),
            (Err(_), Ok(last)) if first.is_empty() => (bytes.saturating_sub(last), bytes),
            _ => return None,
        })
    };
    match parse() {
        None => Range::Whole,
        Some((from, until)) if from < until => Range::Part(from, until),
        Some(_) => Range::Nothing,
    }
}

/// By the end of a name; the rest is bytes.
fn kind(name: &str) -> &'static str {
    let (_, end) = name.rsplit_once('.').unwrap_or_default();
    match end.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" | "log" | "toml" | "rs" | "c" | "h" | "py" | "sh" => {
            "text/plain; charset=utf-8"
        }
        "json" => "application/json",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        _ => "application/octet-stream",
    }
}

/// What is in a directory, with links.
fn list(directory: &File, asked: &str) -> Response<Content> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let end = if entry.file_type() == rustix::fs::FileType::Directory {
                "/"
            } else {
                ""
            };
            if name != "." && name != ".." {
                names.push(name + end);
            }
        }
        names.sort();
        Ok(names)
    };
    let Ok(names) = read() else {
        return plain(StatusCode::FORBIDDEN);
    };
    // A colon would make a scheme of what is before it.
    let link = |name: &str| format!("./{}", percent_encoding::utf8_percent_encode(name, LINK));
    let page = maud::html! {
        (maud::DOCTYPE)
        meta charset="utf-8";
        title { (asked) }
        h1 { (asked) }
        ul {
            @if asked != "/" { li { a href="../" { "../" } } }
            @for name in &names { li { a href=(link(name)) { (name) } } }
        }
    };
    let mut answer = Response::new(Content::of_bytes(page.into_string().into()));
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/html; charset=utf-8",
    );
    answer
}

/// An answer that says what it is.
fn plain(status: StatusCode) -> Response<Content> {
    let mut answer = Response::new(Content::of_bytes(format!("{status}\n").into()));
    *answer.status_mut() = status;
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    answer
}

fn set(answer: &mut Response<Content>, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// What an answer carries.
pub struct Content {
    bytes: Bytes,
    file: Option<File>,
    from: u64,
    until: u64,
    /// Told about, not sent.
    is_head: bool,
}

impl Content {
    fn of_bytes(bytes: Bytes) -> Self {
        Self {
            bytes,
            file: None,
            from: 0,
            until: 0,
            is_head: false,
        }
    }

    fn of_file(file: File, from: u64, until: u64) -> Self {
        Self {
            bytes: Bytes::new(),
            file: Some(file),
            from,
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
            // It has become shorter: what was promised cannot be kept.
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

/// What is written as it is not in links: all but these.
const LINK: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_');
/// Of one read: a quarter of a send buffer.
const READ_BYTES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_of_the_file_or_of_nothing() {
        for (text, wanted) in [
            ("bytes=0-9", Range::Part(0, 10)),
            ("bytes=90-", Range::Part(90, 100)),
            ("bytes=90-1000", Range::Part(90, 100)),
            ("bytes=-10", Range::Part(90, 100)),
            ("bytes=-1000", Range::Part(0, 100)),
            ("bytes=100-", Range::Nothing),
            ("bytes=-0", Range::Nothing),
            ("bytes=9-0", Range::Whole),
            ("bytes=-", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("lines=0-1", Range::Whole),
            ("bytes=99999999999999999999-", Range::Whole),
        ] {
            assert_eq!(range(text, 100), wanted, "{text}");
        }
        assert_eq!(range("bytes=0-", 0), Range::Nothing);
    }

    #[test]
    fn nothing_outside_the_directory_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("sub dir")).unwrap();
        std::fs::write(place.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("sub dir/a%b.txt"), "hello").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("far")).unwrap();
        std::os::unix::fs::symlink("sub dir/a%b.txt", root.join("in")).unwrap();
        let files = Files::open(&root).unwrap();
        let status = |path: &str| {
            let request = Request::builder().uri(path).body(()).unwrap();
            files.answer(&request).status().as_u16()
        };
        for path in [
            "/sub%20dir/a%25b.txt",
            "/in",
            "/",
            "/sub%20dir/",
            "/sub%20dir/../in",
        ] {
            assert_eq!(status(path), 200, "{path}");
        }
        assert_eq!(status("/sub%20dir"), 301);
        for path in [
            "/../secret",
            "/%2e%2e/secret",
            "/out",
            "/far",
            "//etc/passwd",
            "/sub%20dir/../../secret",
            "/none",
        ] {
            assert_eq!(status(path), 404, "{path}");
        }
        assert_eq!(status("/a%00b"), 400);
    }

    #[test]
    fn a_file_that_is_known_is_not_sent_again_and_one_that_changed_is_sent_whole() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), "hello").unwrap();
        let files = Files::open(place.path()).unwrap();
        let ask = |headers: &[(&str, &str)]| {
            let request = Request::builder().uri("/a");
            let request = headers.iter().fold(request, |request, (name, value)| {
                request.header(*name, *value)
            });
            files.answer(&request.body(()).unwrap())
        };
        let first = ask(&[]);
        let tag = first.headers()[header::ETAG].to_str().unwrap();
        let modified = first.headers()[header::LAST_MODIFIED].to_str().unwrap();
        assert_eq!(first.body().size_hint().exact(), Some(5));
        assert_eq!(ask(&[("if-none-match", tag)]).status(), 304);
        assert_eq!(ask(&[("if-modified-since", modified)]).status(), 304);
        let part = ask(&[("range", "bytes=1-3"), ("if-range", tag)]);
        assert_eq!(
            (part.status().as_u16(), part.body().size_hint().exact()),
            (206, Some(3))
        );
        assert_eq!(part.headers()[header::CONTENT_RANGE], "bytes 1-3/5");
        assert_eq!(
            ask(&[("range", "bytes=1-3"), ("if-range", "\"old\"")]).status(),
            200
        );
        assert_eq!(ask(&[("range", "bytes=9-")]).status(), 416);
    }
}
