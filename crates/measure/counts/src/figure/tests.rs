use super::*;

#[test]
fn no_name_is_defined_twice_and_none_is_a_counts() {
    for (index, figure) in Figure::ALL.iter().enumerate() {
        let earlier = &Figure::ALL[..index];
        assert!(
            earlier.iter().all(|other| other.name() != figure.name()),
            "{figure:?}"
        );
        assert!(Q::ALL.iter().all(|count| count.name() != figure.name()));
        let words = |other: &Figure| other.words() != figure.words();
        assert!(earlier.iter().all(words), "{figure:?}");
        assert!(figure.definition().ends_with('.'), "{figure:?}");
    }
}

#[test]
fn no_formula_has_two_names() {
    let formulas = Figure::ALL.iter().map(|figure| {
        let numbered = Numbered { figure: *figure };
        (figure, numbered.value())
    });
    let values: Vec<_> = formulas.collect();
    for (index, (figure, value)) in values.iter().enumerate() {
        let same = values[..index].iter().find(|(_, other)| other == value);
        assert!(same.is_none(), "{figure:?} is {same:?}: {value:?}");
    }
}

#[test]
fn the_meters_of_a_figure_are_those_that_it_cannot_do_without() {
    let names = |figure: Figure| figure.meters().into_iter().collect::<Vec<_>>();
    assert_eq!(names(Figure::CpuUsPerKib), [M::Proc, M::Workload]);
    assert_eq!(names(Figure::SelfCpuRatio), [M::SelfCost]);
    let counts = Figure::TailRatio.counts();
    let expected = [
        (M::Segments, Q::DataSkbsSent),
        (M::Segments, Q::TailSkbsSent),
    ];
    assert!(expected.iter().eq(&counts));
}

/// A source in which every count is another number, so that two equal values mean equal formulas.
struct Numbered {
    figure: Figure,
}

impl Numbered {
    fn value(&self) -> Option<u64> {
        self.figure.value(self).map(f64::to_bits)
    }
}

impl Source for Numbered {
    fn ack_limit_top(&self) -> Option<f64> {
        Some(1.01)
    }

    fn ack_limit_falls(&self) -> Option<(f64, f64)> {
        Some((1.02, 7.0))
    }

    fn buffer_bytes(&self, of: SocketBuffer) -> Option<f64> {
        Some(1.03 + f64::from(of as u8))
    }

    fn buffer_asked_bytes(&self, of: SocketBuffer) -> Option<f64> {
        Some(5.04 + f64::from(of as u8))
    }

    fn count(&self, by: M, of: Q) -> Option<f64> {
        if of == Q::SoakTaskNs {
            return None;
        }
        let place = Q::ALL.iter().position(|&other| other == of)? as f64;
        Some(1e10 / ((place + 2.0).sqrt() + 0.37 * f64::from(by as u8)))
    }

    fn per_s(&self, by: M, of: Q) -> Option<f64> {
        Some(self.count(by, of)? * 1.1)
    }

    fn time_ns(&self, by: M) -> Option<f64> {
        Some(1e11 * (2.0 + f64::from(by as u8)).sqrt())
    }

    fn cpus(&self, _: M) -> Option<f64> {
        Some(2.0)
    }

    fn work(&self, of: Q) -> Option<f64> {
        Some(self.count(M::Workload, of)? * 1.2)
    }

    fn work_per_s(&self, of: Q) -> Option<f64> {
        Some(self.count(M::Workload, of)? * 1.3)
    }

    fn response_us(&self, percentile: f64) -> Option<f64> {
        Some(percentile)
    }

    fn sampling_error(&self) -> Option<f64> {
        Some(7.0)
    }

    fn owns_namespaces(&self) -> bool {
        true
    }

    fn instructions_per_ns(&self) -> Option<f64> {
        // Differs from the PMU's count, which has a name of its own.
        Some(1.7)
    }
}
