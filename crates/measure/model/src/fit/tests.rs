use super::*;
use crate::causes::Counts;
use crate::explain;
use crate::prices::{Place, PriceList, SCHEMA_VERSION};

const TRUTH: [(Cause, f64); 4] = [
    (Cause::ByteCopiedIn, 0.15),
    (Cause::SkbSent, 3_000.0),
    (Cause::SendCall, 700.0),
    (Cause::Sleep, 12_000.0),
];

/// Counts of cell `number`: each cause varies in steps of its own.
fn counts(number: usize) -> Counts {
    let level = |period: usize| [1.0, 5.0, 20.0, 60.0][(number / period) % 4];
    let sizes = [200_000.0, 10.0, 40.0, 2.5];
    let causes = TRUTH.iter().enumerate();
    causes
        .map(|(at, (cause, _))| (*cause, sizes[at] * level([1, 2, 3, 5][at])))
        .collect()
}

/// Samples of cells, six trials each, whose errors are up to `noise` of the cost.
fn samples(cells: std::ops::Range<usize>, noise: f64, more: impl Fn(&mut Counts)) -> Vec<Sample> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut error = move || noise * ((random.next_u64() % 2001) as f64 / 1000.0 - 1.0);
    let mut samples = Vec::new();
    for number in cells {
        let of_cell = error();
        for _ in 0..6 {
            let mut counts = counts(number);
            let cost = |(cause, price): &(Cause, f64)| price * counts.get(*cause).unwrap();
            let cost: f64 = TRUTH.iter().map(cost).sum();
            more(&mut counts);
            samples.push(Sample {
                cell: format!("cell {number}"),
                host: HostName::CLIENT,
                cpu_ns: cost * (of_cell + error()).exp(),
                counts,
            });
        }
    }
    samples
}

fn list(fit: Fit) -> PriceList {
    PriceList {
        schema_version: SCHEMA_VERSION,
        tcpcost: String::new(),
        place: Place {
            host: "a".into(),
            kernel: "6.18 x".into(),
            cpu: "c".into(),
            cpus: 2,
            device: "veth".into(),
        },
        measured_unix_s: 0,
        cells: 16,
        prices: fit.prices,
        unpriced: fit.unpriced,
        accuracy: fit.accuracy,
        draws: fit.draws,
        references: Vec::new(),
    }
}

#[test]
fn prices_and_their_intervals_hold_the_truth() {
    let fitted = samples(0..16, 0.05, |_| ());
    let fit = fit(&fitted, &samples(16..24, 0.05, |_| ())).unwrap();
    for (cause, truth) in TRUTH {
        let price = fit.prices.iter().find(|price| price.cause == cause);
        let price = price.unwrap_or_else(|| panic!("{cause}: {:?}", fit.unpriced));
        let Interval { low, high } = price.interval;
        assert!(low <= price.ns && price.ns <= high, "{price:?}");
        assert!((truth * 0.8..truth * 1.25).contains(&price.ns), "{price:?}");
    }
    let accuracy = &fit.accuracy;
    assert!(accuracy.within_20 == accuracy.predictions, "{accuracy:?}");
    assert!(
        accuracy.interval.low > 0.8 && accuracy.interval.high < 1.25,
        "{accuracy:?}"
    );
}

#[test]
fn a_fit_is_the_same_each_time() {
    let once = || fit(&samples(0..16, 0.1, |_| ()), &samples(16..24, 0.1, |_| ())).unwrap();
    assert_eq!(once(), once());
}

#[test]
fn a_cause_that_goes_with_another_or_does_not_occur_has_no_price() {
    let add = |counts: &mut Counts| {
        // Each send call is one receive call; no connection is opened.
        counts.set(Cause::ReceiveCall, counts.get(Cause::SendCall).unwrap());
        counts.set(Cause::Connection, 0.0);
    };
    let fit = fit(&samples(0..16, 0.05, add), &samples(16..24, 0.05, add)).unwrap();
    let reason = |cause| {
        let mut unpriced = fit.unpriced.iter();
        unpriced
            .find(|one| one.cause == cause)
            .map(|one| one.reason.as_str())
    };
    assert_eq!(reason(Cause::Connection), Some("did not occur"));
    assert_eq!(reason(Cause::AckSent), Some("not counted by these meters"));
    let calls = [Cause::SendCall, Cause::ReceiveCall].map(reason);
    let told: Vec<&str> = calls.into_iter().flatten().collect();
    assert_eq!(
        told.len(),
        1,
        "one of the two has the price of both: {calls:?}"
    );
    assert!(told[0].starts_with("cannot be told from"), "{told:?}");
}

#[test]
fn too_few_cells_are_an_error() {
    let few = fit(&samples(0..3, 0.1, |_| ()), &samples(16..24, 0.1, |_| ()));
    assert_eq!(
        few,
        Err(FitError::TooFew {
            fitted: 3,
            checked: 8
        })
    );
}

#[test]
fn an_explanation_has_a_term_for_each_cause_and_names_what_was_not_counted() {
    let fit = fit(
        &samples(0..16, 0.05, |_| ()),
        &samples(16..24, 0.05, |_| ()),
    )
    .unwrap();
    let list = list(fit);
    let mut counts = counts(9);
    let whole = explain(&list, &counts, None);
    let measured = whole.priced_ns + 50_000.0;
    let explained = explain(&list, &counts, Some(measured));
    let sum: f64 = explained.terms.iter().map(|term| term.ns).sum();
    let sum = sum + explained.inseparable_ns;
    assert!((sum / explained.priced_ns - 1.0).abs() < 1e-9);
    assert!((explained.unpriced_ns.unwrap() - 50_000.0).abs() < 1.0);
    assert!(explained.not_counted.is_empty());
    assert!(
        explained
            .terms
            .is_sorted_by(|one, other| one.ns >= other.ns)
    );
    counts = counts
        .iter()
        .filter(|(cause, _)| *cause != Cause::Sleep)
        .collect();
    let without = explain(&list, &counts, Some(measured));
    assert_eq!(without.not_counted, [Cause::Sleep]);
    assert!(without.priced_ns < explained.priced_ns);
    // Beyond what was studied.
    counts.set(Cause::SkbSent, 1e9);
    let skbs = explain(&list, &counts, None);
    assert!(skbs.terms[0].cause == Cause::SkbSent);
}

#[test]
fn a_list_survives_its_file_and_another_version_is_refused() {
    let fit = fit(
        &samples(0..16, 0.05, |_| ()),
        &samples(16..24, 0.05, |_| ()),
    )
    .unwrap();
    let mut list = list(fit);
    let folder = std::env::temp_dir().join(format!("tcpcost-model-{}", std::process::id()));
    let path = folder.join("prices.json");
    crate::prices::write(&list, &path).unwrap();
    assert_eq!(crate::prices::read(&path).unwrap(), list);
    list.schema_version += 1;
    crate::prices::write(&list, &path).unwrap();
    let error = crate::prices::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("run tcpcost model again"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
    let error = crate::prices::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("run tcpcost model first"), "{error}");
}
