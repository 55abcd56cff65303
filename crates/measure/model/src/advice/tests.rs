//! Rules on made readings: each fires, its neighbour does not, and a claim needs an interval without 0.

mod made;

use tcpcost_counts::{MeterName as M, Quantity as Q};

use self::made::{Made, cases, list, sender, server};
use super::*;
use crate::causes::{Cause, Counts};
use crate::prices::PriceList;

/// True if the rule is advised, with a claim or without.
fn is_advised(id: &str, made: &Made, list: &PriceList) -> bool {
    let advised = advise(&made.situation(Some(list)));
    let mut all = advised.claims.iter().chain(&advised.worth_trying);
    all.any(|advice| advice.rule.id == id)
}

/// Rules that need a count which no meter has yet.
const UNCOUNTED: &[&str] = &[];

#[test]
fn each_rule_fires_on_a_made_reading_and_not_on_its_neighbour() {
    let list = list(1.2);
    let cases = cases();
    for case in &cases {
        assert!(
            is_advised(case.id, &case.fires, &list),
            "{} does not fire",
            case.id
        );
        let mut other = case.fires.clone();
        (case.neighbour)(&mut other);
        assert!(
            !is_advised(case.id, &other, &list),
            "{} fires on its neighbour",
            case.id
        );
    }
    for rule in rules() {
        let has_case = cases.iter().any(|case| case.id == rule.id);
        assert!(
            has_case || UNCOUNTED.contains(&rule.id),
            "{} has no case",
            rule.id
        );
    }
}

#[test]
fn each_claim_names_a_saving_whose_interval_is_above_0() {
    let list = list(1.2);
    for case in cases() {
        let advised = advise(&case.fires.situation(Some(&list)));
        for claim in &advised.claims {
            let saving = claim.saving.expect("a claim has a saving");
            assert_eq!(claim.rule.class, Class::A, "{}", case.id);
            assert!(
                saving.share >= LEAST && saving.interval.low > 0.0,
                "{}",
                case.id
            );
            let interval = saving.interval;
            assert!(
                (interval.low..=interval.high).contains(&saving.share),
                "{}: {saving:?}",
                case.id
            );
            assert!(interval.high < 1.0, "{}", case.id);
        }
    }
}

#[test]
fn a_claim_whose_interval_includes_0_is_withheld() {
    let made = server(2048.0, 1.0, 0.15);
    let claims = |error| {
        let list = list(error);
        let advised = advise(&made.situation(Some(&list)));
        let claim = advised
            .claims
            .iter()
            .any(|one| one.rule.id == "keep-connections");
        let mut tries = advised.worth_trying.iter();
        let withheld = tries.find(|one| one.rule.id == "keep-connections");
        (claim, withheld.map(|one| one.withheld.clone()))
    };
    assert_eq!(claims(1.02), (true, None));
    let (claim, withheld) = claims(3.0);
    assert!(!claim);
    let withheld = withheld.expect("it is worth trying");
    assert!(
        withheld.starts_with("its interval includes 0"),
        "{withheld}"
    );
}

#[test]
fn without_prices_nothing_is_claimed_and_settings_are_still_advised() {
    let made = sender(700.0, 700.0).setting("net.ipv4.tcp_autocorking", "0");
    let advised = advise(&made.situation(None));
    assert!(advised.claims.is_empty() && advised.explanation.is_none());
    let ids: Vec<&str> = advised.worth_trying.iter().map(|one| one.rule.id).collect();
    assert!(
        ids.contains(&"autocorking-on") && ids.contains(&"larger-writes"),
        "{ids:?}"
    );
    assert!(
        advised
            .worth_trying
            .iter()
            .all(|one| one.upper_bound.is_none())
    );
}

#[test]
fn counts_beyond_what_was_studied_are_not_claimed() {
    let mut list = list(1.2);
    for price in &mut list.prices {
        if price.cause == Cause::SkbSent {
            price.most_per_cpu_s = 1.0;
        }
    }
    let made = sender(512.0, 512.0);
    let advised = advise(&made.situation(Some(&list)));
    assert!(advised.claims.is_empty());
    let mut tries = advised.worth_trying.iter();
    let of = tries.find(|one| one.rule.id == "larger-writes").unwrap();
    assert!(of.withheld.contains("than in any cell"), "{}", of.withheld);
}

#[test]
fn of_two_rules_with_the_same_effect_only_the_better_is_claimed() {
    let list = list(1.1);
    let made = sender(512.0, 512.0);
    let advised = advise(&made.situation(Some(&list)));
    let claimed: Vec<&str> = advised.claims.iter().map(|one| one.rule.id).collect();
    assert_eq!(claimed, ["larger-writes"]);
    let mut tries = advised.worth_trying.iter();
    let cork = tries.find(|one| one.rule.id == "cork").unwrap();
    assert_eq!(
        cork.withheld,
        "instead of larger-writes: it has the same effect"
    );
}

#[test]
fn small_files_are_not_advised_to_use_sendfile() {
    let list = list(1.2);
    let made = server(24_000.0, 6.0, 1.0);
    let advised = advise(&made.situation(Some(&list)));
    let mut not_here = advised.not_here.iter();
    let sendfile = not_here.find(|one| one.rule.id == "sendfile").unwrap();
    assert!(
        sendfile.reason.contains("KiB sent per response"),
        "{}",
        sendfile.reason
    );
    assert!(sendfile.upper_bound.unwrap() < LEAST);
}

#[test]
fn the_other_end_changes_only_if_it_is_counted() {
    let list = list(1.1);
    let mut made = sender(512.0, 512.0);
    let saved = |made: &Made| {
        let situation = made.situation(Some(&list));
        let rule = rule("larger-writes").unwrap();
        let mut counts = situation.counts.clone();
        let unknowns = Unknowns {
            follows: 0.0,
            between: 0.5,
        };
        for change in rule.change {
            change.apply(&mut counts, &situation, unknowns).unwrap();
        }
        counts
    };
    let received = |counts: &Counts| counts.get(Cause::SkbReceived).unwrap();
    made.set(M::Segments, Q::DataSkbsReceived, 1e6);
    assert_eq!(received(&saved(&made)), 1e6);
    made.has_both_ends = true;
    assert!(received(&saved(&made)) < 2e4);
}

#[test]
fn ids_are_unique_and_every_rule_is_whole() {
    let ids: std::collections::BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), rules().count());
    for rule in rules() {
        for text in [
            rule.title,
            rule.limits,
            rule.claim,
            rule.source,
            rule.study,
            rule.act,
            rule.undo,
            rule.costs,
        ] {
            assert!(!text.is_empty(), "{}", rule.id);
        }
        assert!(!rule.when.is_empty(), "{}", rule.id);
        assert_eq!(
            rule.class == Class::A,
            !rule.change.is_empty(),
            "{}",
            rule.id
        );
        assert!(
            rule.instead.iter().all(|id| ids.contains(id)),
            "{}",
            rule.id
        );
    }
}

#[test]
fn lines_have_the_names_of_the_work() {
    let mut subject = Subject {
        name: "nginx".to_string(),
        target: "--pid 7".to_string(),
        load: "./load 'a b'".to_string(),
        device: "eth0".to_string(),
        within: "nsenter -t 7 -n ".to_string(),
    };
    let lines = subject.lines(rule("tso-on").unwrap());
    assert_eq!(lines.act, "nsenter -t 7 -n ethtool -K eth0 tso on");
    let side = |on: &str| {
        let load = r"./load '\''a b'\''";
        format!("sh -c 'nsenter -t 7 -n ethtool -K eth0 tso {on}; {load}'")
    };
    let (off, on) = (side("off"), side("on"));
    assert_eq!(
        lines.verify,
        format!("tcpcost stat --pid 7 -n 10 -- {off} --versus -- {on}")
    );
    let lines = subject.lines(rule("larger-writes").unwrap());
    assert_eq!(
        lines.verify,
        "tcpcost stat --pid 7 -n 10 -- OLD --versus -- NEW"
    );
    subject.target.clear();
    let lines = subject.lines(rule("larger-writes").unwrap());
    assert_eq!(
        lines.verify,
        "tcpcost stat -n 10 -- ./load 'a b' --versus -- NEW"
    );
}

#[test]
fn advice_is_a_sentence_its_terms_and_ranked_lines() {
    let list = list(1.1);
    let mut made = server(24_000.0, 6.0, 1.0)
        .setting("segmentation", "tso")
        .setting("tso", "on");
    made.set(M::Exact, Q::ExactOwnNetRxRuns, 600_000.0);
    let mut situation = made.situation(Some(&list));
    situation.measured_ns = Some(80e9);
    situation.units = Some(150_000.0);
    let subject = Subject {
        name: "A response".to_string(),
        target: "--pid 2214".to_string(),
        load: "sleep 10".to_string(),
        device: "eth0".to_string(),
        within: String::new(),
    };
    let remarks = Remarks {
        prices: "Prices: tcpcost model, 8 minutes ago, over veth.".to_string(),
        notes: vec!["A note.".to_string()],
    };
    let text = advise(&situation).text(&subject, &remarks);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/advice.txt");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap_or_default());
}

#[test]
fn larger_writes_on_new_connections_are_tried_and_not_claimed() {
    let list = list(1.1);
    let of = |opens: f64| {
        let advised = advise(&server(24_000.0, 6.0, opens).situation(Some(&list)));
        let is_one = |one: &&Advice| one.rule.id == "larger-writes";
        let is_claimed = advised.claims.iter().any(|one| is_one(&one));
        let withheld = advised.worth_trying.iter().find(is_one);
        (is_claimed, withheld.map(|one| one.withheld.clone()))
    };
    assert_eq!(of(0.05), (true, None));
    let withheld = "its counts are not known at 1.0 connections per response";
    assert_eq!(of(1.0), (false, Some(withheld.to_string())));
}
