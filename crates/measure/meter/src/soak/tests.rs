use super::*;
use std::time::{Duration, Instant};
use tcpcost_counts::Figure;

const SECOND: u64 = 1_000_000_000;

fn soak(whose: CountOwner, duration_ns: u64, units: u64, task_ns: u64) -> Reading {
    Reading {
        meter: MeterName::Soak,
        whose,
        duration_ns,
        counts: counts(units, task_ns).into(),
    }
}

fn stolen(cpu: usize, steal_ns: u64) -> Reading {
    Reading {
        meter: MeterName::Proc,
        whose: CountOwner::Cpu(cpu),
        duration_ns: SECOND,
        counts: [(Quantity::CpuStealNs, steal_ns)].into(),
    }
}

fn idle(cpu: usize, units_per_s: f64) -> Calibration {
    Calibration {
        cpu,
        units_per_s: Some(units_per_s),
        others_ratio: 0.0,
        steal_ratio: Some(0.0),
    }
}

#[test]
fn an_idle_cpu_is_calibrated_by_its_whole_time() {
    let reading = soak(CountOwner::Cpu(3), SECOND, 5000, SECOND);
    let calibration = Calibration::of(&[reading], &[stolen(3, 0)])[0];
    assert_eq!(calibration, idle(3, 5000.0));
    assert!(calibration.is_quiet());
}

#[test]
fn others_and_steal_are_taken_out_of_a_calibration_and_said() {
    // 0.1 s stolen, 0.4 s used by others.
    let reading = soak(CountOwner::Cpu(0), SECOND, 2500, SECOND / 2);
    let calibration = Calibration::of(&[reading], &[stolen(0, SECOND / 10)])[0];
    assert_eq!(calibration.units_per_s, Some(5000.0));
    assert!((calibration.others_ratio - 0.4).abs() < 1e-9);
    assert_eq!(calibration.steal_ratio, Some(0.1));
    assert!(!calibration.is_quiet());
    // A kernel that counts stolen time as the thread's own.
    let reading = soak(CountOwner::Cpu(0), SECOND, 4500, SECOND);
    let calibration = Calibration::of(&[reading], &[stolen(0, SECOND / 10)])[0];
    assert_eq!(calibration.units_per_s, Some(5000.0));
    assert_eq!(calibration.others_ratio, 0.0);
}

#[test]
fn a_spinner_that_never_ran_has_no_rate_and_untold_steal_is_not_zero() {
    let reading = soak(CountOwner::Cpu(0), SECOND, 1, 900_000);
    let calibration = Calibration::of(&[reading], &[])[0];
    assert_eq!(calibration.units_per_s, None);
    assert_eq!(calibration.steal_ratio, None);
    assert_eq!(calibration.drift(&idle(0, 1.0)), None);
}

#[test]
fn load_is_the_missing_share_of_the_time_that_was_not_stolen() {
    let mut readings = [soak(CountOwner::Cpu(1), SECOND, 3000, SECOND)];
    add_idle_work(&mut readings, &[stolen(1, SECOND / 4)], &[idle(1, 5000.0)]);
    assert_eq!(readings[0].counts[&Quantity::SoakIdleWorkUnits], 3750);
    assert!((Figure::SoakLoadRatio.value(&readings[0]).unwrap() - 0.2).abs() < 1e-9);
    // A rate above the calibrated one gives a load below 0, which is not cut off.
    readings[0].counts.insert(Quantity::SoakWorkUnits, 3900);
    assert!((Figure::SoakLoadRatio.value(&readings[0]).unwrap() + 0.04).abs() < 1e-9);
}

#[test]
fn without_a_calibration_there_is_no_load() {
    let whole = CountOwner::Cpus(vec![0, 1]);
    let mut readings = [
        soak(whole, SECOND, 7000, 2 * SECOND),
        soak(CountOwner::Cpu(0), SECOND, 3000, SECOND),
        soak(CountOwner::Cpu(1), SECOND, 4000, SECOND),
    ];
    add_idle_work(&mut readings, &[], &[idle(0, 5000.0)]);
    assert_eq!(Figure::SoakLoadRatio.value(&readings[0]), None);
    assert!((Figure::SoakLoadRatio.value(&readings[1]).unwrap() - 0.4).abs() < 1e-9);
    assert_eq!(Figure::SoakLoadRatio.value(&readings[2]), None);
    add_idle_work(&mut readings, &[], &[idle(0, 5000.0), idle(1, 5000.0)]);
    assert!((Figure::SoakLoadRatio.value(&readings[0]).unwrap() - 0.3).abs() < 1e-9);
    // All of the time was stolen.
    add_idle_work(&mut readings, &[stolen(1, SECOND)], &[idle(1, 5000.0)]);
    assert_eq!(Figure::SoakLoadRatio.value(&readings[2]), None);
}

#[test]
fn two_calibrations_have_a_drift_and_a_mean() {
    let (before, mut after) = (idle(0, 5000.0), idle(0, 4900.0));
    after.others_ratio = 0.3;
    assert!((after.drift(&before).unwrap() + 0.02).abs() < 1e-9);
    let both = before.with(&after);
    assert_eq!(both.units_per_s, Some(4950.0));
    assert!(!both.is_quiet());
}

#[test]
fn lines_are_dirtied_at_the_rate_that_was_asked_for() {
    // 1024 units in 2 ms are 512,000 per second.
    let per_unit = lines_per_unit(256_000, 2_000_000, 1024);
    assert_eq!(per_unit, ONE / 2);
    let mut work = Work::new(per_unit);
    (0..1000).for_each(|_| work.unit());
    let dirty = work.lines.iter().filter(|line| line.0 > 1).count();
    assert_eq!(dirty, 500);
    assert_eq!(lines_per_unit(0, 2_000_000, 1024), 0);
    assert_eq!(lines_per_unit(u64::MAX, u64::MAX, 1), ONE * 1024);
}

#[test]
fn a_cpu_that_is_not_there_is_an_error() {
    let error = Soakers::start(&[1 << 15], 0).unwrap_err();
    assert!(error.to_string().contains("sched_setaffinity"), "{error}");
}

#[test]
fn what_a_busy_thread_takes_is_missing_from_the_spinners_work() {
    // SAFETY: takes no arguments.
    let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
    let mut soakers = Soakers::start(&[cpu], DIRTY_LINES_DEFAULT).unwrap();
    let mut proc = crate::proc::Proc::new(&[cpu]);
    let before = (soakers.snapshot().unwrap(), proc.snapshot().unwrap());
    let busy_ns = std::thread::spawn(move || {
        pin(cpu).unwrap();
        let spent_ns = || clock::now_ns(rustix::time::ClockId::ThreadCPUTime);
        while spent_ns() < 200_000_000 {}
        spent_ns()
    });
    let busy_ns = busy_ns.join().unwrap();
    let beside = (soakers.snapshot().unwrap(), proc.snapshot().unwrap());

    // Then the spinner runs alone, until it had enough time for a rate, however long that takes.
    let soak_of = |after: &Snapshot, before: &Snapshot| {
        let readings = after.since(before).unwrap();
        let own = |reading: &Reading| reading.whose == CountOwner::Cpu(cpu);
        vec![readings.into_iter().find(own).unwrap()]
    };
    let started = Instant::now();
    let calibration = loop {
        std::thread::yield_now();
        let soak = soak_of(&soakers.snapshot().unwrap(), &beside.0);
        let calibration = Calibration::of(&soak, &[])[0];
        if calibration.units_per_s.is_some() {
            break calibration;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "starved");
    };

    let mut soak = soak_of(&beside.0, &before.0);
    // With SCHED_IDLE the spinner gets 3 parts of a CPU against 1024 of a normal thread. Time that others
    // take from both does not change this ratio.
    let task_ns = soak[0].counts[&Quantity::SoakTaskNs];
    assert!(task_ns * 2 < busy_ns, "{task_ns} beside {busy_ns}");
    let stolen = beside.1.since(&before.1).unwrap();
    add_idle_work(&mut soak, &stolen, &[calibration]);
    let load = Figure::SoakLoadRatio.value(&soak[0]);
    assert!(load.is_none_or(|load| load > 0.5), "{load:?} {soak:?}");
}
