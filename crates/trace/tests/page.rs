//! Tests of the page in a real browser. A script of the test does what a person does with the
//! mouse.

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{CLIENT, SERVER, Script};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tcpcost_testbed::{Browser, Loaded};
use tcpcost_trace::{Analysis, Filter, Graph, Settings, page, read};

/// Page of two connections next to each other, each with 40 packets in 40 ms.
fn two_connections() -> String {
    let mut packets = Vec::new();
    for port in [40_000, 40_001] {
        let mut script = Script::open();
        for packet in 0..40 {
            script.after(500).data(CLIENT, packet * 1000, 1000);
            script.after(500).ack(SERVER, (packet + 1) * 1000);
        }
        for packet in &mut script.packets {
            packet.client_port = port;
        }
        packets.append(&mut script.packets);
    }
    packets.sort_by_key(|packet| packet.at_us);
    let graph = Graph::of(&[1, 2]);
    let mut analysis = Analysis::watched(Settings::default(), Filter::default(), graph);
    let (reading, outcome) = read(&common::pcap(&packets, false)[..], &mut analysis);
    let (report, graph) = analysis.into_report("two", &reading, outcome.as_ref().copied());
    page(&report, &graph)
}

/// Script that drags across the second quarter of the first chart, then shows all of it again. It
/// reports what was drawn each time, and whether the second connection's chart is next to the
/// first.
const DRAG: &str = r#"<script>
(() => {
  const [first, second] = document.querySelectorAll("figure[data-chart] .chart");
  const drawn = () => {
    const svg = first.querySelector("svg");
    const ticks = [...svg.querySelectorAll("[aria-label='x-axis tick label'] text")];
    return {dots: svg.querySelectorAll("[aria-label='dot'] circle").length, ticks: ticks.map((of) => Number(of.textContent.replace(/[^0-9.]/g, "")))};
  };
  const at = (share) => {
    const svg = first.querySelector("svg").getBoundingClientRect();
    const scale = svg.width / first.querySelector("svg").width.baseVal.value;
    return {bubbles: true, clientX: svg.left + 80 * scale + share * (svg.width - 100 * scale), clientY: svg.top + 100};
  };
  const drag = (from, to) => {
    first.dispatchEvent(new PointerEvent("pointerdown", at(from)));
    first.dispatchEvent(new PointerEvent("pointerup", at(to)));
    return drawn();
  };
  const [a, b] = [first, second].map((of) => of.getBoundingClientRect());
  const told = {whole: drawn(), part: drag(0.25, 0.5), smaller: drag(0, 0.5), click: drag(0.5, 0.5)};
  first.dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
  told.again = drawn();
  told.beside = a.top === b.top && a.right <= b.left;
  document.body.insertAdjacentHTML("beforeend", `<output>${JSON.stringify(told)}</output>`);
})();
</script></body>"#;

/// Adds a script of the test to the page, and allows it in the page's policy.
fn with_script(page: &str, script: &str) -> String {
    let text = script.strip_prefix("<script>").unwrap();
    let (text, _) = text.split_once("</script>").unwrap();
    let hash = STANDARD.encode(Sha256::digest(text));
    let allowed = page.replace("script-src ", &format!("script-src 'sha256-{hash}' "));
    allowed.replace("</body>", script)
}

#[test]
fn a_script_that_the_page_was_not_made_with_does_not_run() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let dom = |page: &str| browser.load(page).dom;
    let script = "<script>document.title = 'obe' + 'yed'</script></body>";
    let page = two_connections();
    assert!(dom(&with_script(&page, script)).contains("obeyed"));
    assert!(!dom(&page.replace("</body>", script)).contains("obeyed"));
    let handler = "<svg onload=\"document.title = 'obe' + 'yed'\"></svg></body>";
    assert!(!dom(&page.replace("</body>", handler)).contains("obeyed"));
}

#[test]
fn dragging_across_a_chart_shows_that_part_and_a_double_click_all_of_it() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let Loaded {
        dom, complaints, ..
    } = browser.load(&with_script(&two_connections(), DRAG));
    assert!(complaints.is_empty(), "{complaints:#?}");
    // The script itself contains the word earlier.
    let told = dom
        .rsplit("<output>")
        .next()
        .and_then(|rest| rest.split("</output>").next());
    let told: Value = serde_json::from_str(told.expect("the script ran to its end")).unwrap();
    let dots = |of: &str| told[of]["dots"].as_u64().unwrap();
    assert_eq!(dots("whole"), 40, "{told}");
    assert!((9..=11).contains(&dots("part")), "{told}");
    assert!((4..=6).contains(&dots("smaller")), "{told}");
    assert_eq!(told["click"], told["smaller"], "a click is no drag: {told}");
    assert_eq!(told["again"], told["whole"], "{told}");
    // The axis is that of the part: 10 to 20 ms.
    let ticks = told["part"]["ticks"].as_array().unwrap();
    assert!(
        ticks
            .iter()
            .all(|at| (9.0..21.5).contains(&at.as_f64().unwrap())),
        "{told}"
    );
    assert_eq!(told["beside"], true, "{told}");
}

/// Script that lists the elements beyond the right edge of a page of 400 pixels.
const NARROW: &str = r#"<script>
(() => {
  document.body.style.maxWidth = "400px";
  document.body.style.margin = "0";
  const parts = [...document.querySelectorAll("h1, h2, figcaption, figure")];
  const cut = parts.filter((of) => of.getBoundingClientRect().right > 400 || of.scrollWidth > of.clientWidth);
  document.body.insertAdjacentHTML("beforeend", `<output>${parts.length} ${cut.map((of) => of.tagName)}</output>`);
})();
</script></body>"#;

#[test]
fn nothing_is_cut_off_on_a_narrow_screen() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let name = "a_capture_with_a_name_without_spaces_of_an_interface_and_a_date-20260101.pcapng";
    let page = two_connections().replace(">two:", &format!(">{name}:"));
    assert!(page.contains(name));
    let dom = browser.load(&with_script(&page, NARROW)).dom;
    let told = dom
        .rsplit("<output>")
        .next()
        .and_then(|rest| rest.split("</output>").next());
    let (parts, cut) = told.and_then(|told| told.split_once(' ')).expect("it ran");
    assert!(parts.parse::<u32>().unwrap() > 10, "{parts}");
    assert_eq!(cut, "");
}

#[test]
fn charts_of_several_connections_stand_beside_each_other_by_kind() {
    let page = two_connections();
    let titles: Vec<&str> = page
        .split("<figcaption>")
        .skip(1)
        .map(|rest| &rest[..rest.find("</").unwrap()])
        .collect();
    assert!(titles.len() > 8, "{titles:?}");
    for pair in titles.chunks(2) {
        let [first, second] = pair else {
            panic!("{pair:?}")
        };
        let as_first = second
            .replace("Connection 2", "Connection 1")
            .replace(":40001", ":40000");
        assert_eq!(*first, as_first);
    }
}
