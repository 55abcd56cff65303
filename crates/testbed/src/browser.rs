//! A page in a headless Chromium: its document, and its errors.

use std::path::PathBuf;
use std::process::Command;

/// A Chromium that loads pages.
pub struct Browser {
    chromium: PathBuf,
    folder: tempfile::TempDir,
}

/// A page after its scripts ran.
pub struct Loaded {
    /// Document after the scripts.
    pub dom: String,
    /// Lines of the console: errors of scripts, and requests that a policy refused.
    pub complaints: Vec<String>,
    log: String,
}

impl Browser {
    /// Finds a Chromium on PATH. `None` if there is none, or if it loads no page: the test is
    /// skipped.
    pub fn find() -> Option<Browser> {
        let path = std::env::var_os("PATH")?;
        let chromium = ["chromium", "chromium-browser", "google-chrome"]
            .iter()
            .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
            .find(|file| file.is_file());
        let Some(chromium) = chromium else {
            crate::skip("no chromium, chromium-browser or google-chrome on PATH");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder for pages");
        let browser = Browser { chromium, folder };
        let first = browser.load("<p>here</p>");
        if !first.dom.contains("here") {
            let name = browser.chromium.display();
            crate::skip(&format!("{name} loads no page: {}", first.log));
            return None;
        }
        Some(browser)
    }

    /// Loads a page, with a new profile.
    pub fn load(&self, html: &str) -> Loaded {
        let page = self.folder.path().join("page.html");
        std::fs::write(&page, html).expect("the page is written");
        let profile = tempfile::tempdir_in(&self.folder).expect("a folder for the profile");
        let output = Command::new(&self.chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--enable-logging=stderr"])
            .args(["--dump-dom", "--window-size=1600,1200"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("file://{}", page.display()))
            .output()
            .expect("the browser starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let log = text(&output.stderr);
        let complaints = log.lines().filter(|line| line.contains("CONSOLE"));
        Loaded {
            dom: text(&output.stdout),
            complaints: complaints.map(str::to_string).collect(),
            log,
        }
    }
}
