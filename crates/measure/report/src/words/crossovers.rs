//! Sentence about the value of one knob from which a value of another costs less.

use crate::derive::number::signed;
use crate::judge::conclusions::Crossing;
use crate::judge::sign::Sign;

/// Text for crossings in the order of their values, such as `is cheaper from 16KiB on (−23 % [−44, −16]
/// there), costs more up to 1KiB; not decided at 4KiB`.
pub(crate) fn told(crossings: &[Crossing]) -> String {
    let (refused, decided): (Vec<&Crossing>, Vec<&Crossing>) =
        crossings.iter().partition(|one| one.incomparable.is_some());
    let reason = refused.first().and_then(|one| one.incomparable.as_ref());
    match (reason, decided.is_empty()) {
        (None, _) => of_comparable(&decided),
        (Some(reason), true) => format!("is not comparable: {reason}"),
        (Some(reason), false) => {
            let values: Vec<String> = refused.iter().map(|one| one.at.to_string()).collect();
            let (text, values) = (of_comparable(&decided), values.join(", "));
            format!("{text}; not comparable at {values}: {reason}")
        }
    }
}

/// Text for crossings that can all be compared.
fn of_comparable(crossings: &[&Crossing]) -> String {
    let sign = |one: &Crossing| one.percent.as_ref().map_or(Sign::Unknown, Sign::of);
    let signs: Vec<Sign> = crossings.iter().map(|one| sign(one)).collect();
    let of = |wanted: Sign| {
        let with = crossings.iter().zip(&signs);
        let with = with.filter(move |(_, sign)| **sign == wanted);
        with.map(|(one, _)| one.at.to_string()).collect::<Vec<_>>()
    };
    let below_at_end = signs.iter().rev().take_while(|sign| **sign == Sign::Below);
    let above_at_start = signs.iter().take_while(|sign| **sign == Sign::Above);
    let (below, above) = (below_at_end.count(), above_at_start.count());
    let (cheaper, dearer) = (of(Sign::Below), of(Sign::Above));
    let interval = |one: &Crossing| {
        let percent = one.percent.as_ref().map(signed);
        percent.map_or(String::new(), |percent| format!(" ({percent} there)"))
    };
    let mut parts = Vec::new();
    parts.push(match (below, &cheaper[..]) {
        (all, _) if all == crossings.len() => "is cheaper everywhere".to_string(),
        (0, []) => "is cheaper nowhere".to_string(),
        (0, some) => format!("is cheaper at {}", some.join(", ")),
        (count, _) => {
            let first = crossings[crossings.len() - count];
            format!("is cheaper from {} on{}", first.at, interval(first))
        }
    });
    match (above, &dearer[..]) {
        (_, []) => {}
        (0, some) => parts.push(format!("costs more at {}", some.join(", "))),
        (count, some) if count == some.len() => {
            let last = crossings[count - 1];
            parts.push(format!("costs more up to {}{}", last.at, interval(last)));
        }
        (_, some) => parts.push(format!("costs more at {}", some.join(", "))),
    }
    let open: Vec<String> = [of(Sign::Open), of(Sign::Unknown)].concat();
    let text = parts.join(", ");
    match open.is_empty() {
        true => text,
        false => format!("{text}; not decided at {}", open.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use tcpcost_study::Value;

    use super::*;
    use crate::derive::estimate::Estimate;
    use crate::judge::comparable::Incomparable;

    fn crossings(changes: &[(u64, f64, f64)]) -> Vec<Crossing> {
        let one = |&(at, lo, hi): &(u64, f64, f64)| Crossing {
            at: Value::Bytes(at << 10),
            percent: Some(Estimate {
                median: (lo + hi) / 2.0,
                lo: Some(lo),
                hi: Some(hi),
                n: 6,
            }),
            incomparable: None,
        };
        changes.iter().map(one).collect()
    }

    #[test]
    fn what_is_cheaper_is_so_from_some_value_on() {
        let usual = crossings(&[
            (1, 5.0, 15.0),
            (4, -5.0, 6.0),
            (16, -44.0, -16.0),
            (64, -60.0, -40.0),
        ]);
        assert_eq!(
            told(&usual),
            "is cheaper from 16KiB on (\u{2212}30 % [\u{2212}44, \u{2212}16] there), costs more up to 1KiB (10 % [5, 15] there); \
             not decided at 4KiB"
        );
        assert_eq!(
            told(&crossings(&[(1, -9.0, -3.0), (4, -9.0, -3.0)])),
            "is cheaper everywhere"
        );
        assert_eq!(
            told(&crossings(&[(1, -9.0, 3.0), (4, 1.0, 3.0)])),
            "is cheaper nowhere, costs more at 4KiB; not decided at 1KiB"
        );
        assert_eq!(
            told(&crossings(&[(1, -9.0, -3.0), (4, -1.0, 3.0)])),
            "is cheaper at 1KiB; not decided at 4KiB"
        );
        let missing = [Crossing {
            at: Value::Bytes(1024),
            percent: None,
            incomparable: None,
        }];
        assert_eq!(told(&missing), "is cheaper nowhere; not decided at 1KiB");
    }

    #[test]
    fn what_is_not_comparable_is_no_crossing() {
        let mut all = crossings(&[(1, 5.0, 15.0), (16, -44.0, -16.0)]);
        all[0].percent = None;
        all[0].incomparable = Some(Incomparable::UnequalWork);
        assert_eq!(
            told(&all),
            "is cheaper everywhere; not comparable at 1KiB: they did unequal work at a fixed rate"
        );
        all.truncate(1);
        assert_eq!(
            told(&all),
            "is not comparable: they did unequal work at a fixed rate"
        );
    }
}
