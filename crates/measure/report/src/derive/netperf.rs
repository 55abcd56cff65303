//! netperf's service demand and its inverse, for comparisons with published figures.

/// Bits in a KiB: netperf's KB is 1024 bytes.
const BITS_PER_KIB: f64 = 8.0 * 1024.0;

/// CPU µs per KiB (netperf's "service demand", whose KB is 1024 bytes) of a load that keeps
/// `cpu_ratio` (0..=1) of `cpus` CPUs busy and moves `bits_per_s` of payload.
///
/// Formula of netperf 2, netlib.c, `calc_service_demand_internal`. `None` if nothing was moved.
///
/// ```
/// // Jones 2005: 22.14 % of two CPUs at 941.29 Mbit/s, printed as 3.853.
/// let demand = tcpcost_report::service_demand_us_per_kib(0.2214, 2, 941.29e6).unwrap();
/// assert!((demand - 3.853).abs() < 0.001);
/// ```
pub fn service_demand_us_per_kib(cpu_ratio: f64, cpus: u32, bits_per_s: f64) -> Option<f64> {
    let kib_per_s = bits_per_s / BITS_PER_KIB;
    (kib_per_s > 0.0).then(|| cpu_ratio * f64::from(cpus) * 1e6 / kib_per_s)
}

/// Share (0..=1) of `cpus` CPUs that corresponds to a service demand at this rate: the inverse of
/// [`service_demand_us_per_kib`]. `None` if there are no CPUs.
pub fn cpu_ratio(service_demand_us_per_kib: f64, cpus: u32, bits_per_s: f64) -> Option<f64> {
    let kib_per_s = bits_per_s / BITS_PER_KIB;
    (cpus > 0).then(|| service_demand_us_per_kib * kib_per_s / 1e6 / f64::from(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tests/data/README.md names the source.
    const JONES: &str = include_str!("../../tests/data/jones2005_netperf_tcp_stream_ack_sweep.csv");

    #[test]
    fn all_rows_of_jones_2005_follow_from_their_throughput_and_utilisation() {
        let header: Vec<&str> = JONES.lines().next().unwrap().split(',').collect();
        let column = |name: &str| header.iter().position(|title| *title == name).unwrap();
        let (throughput, cpu, demand) = (
            column("throughput_mbit_per_s"),
            column("local_cpu_pct_of_2cpu"),
            column("local_service_demand_usec_per_kb"),
        );
        let mut rows = 0;
        for row in JONES.lines().skip(1) {
            let cell: Vec<&str> = row.split(',').collect();
            let number = |index: usize| cell[index].parse::<f64>().unwrap();
            let bits_per_s = number(throughput) * 1e6;
            // Rounding of the printed utilisation to 0.01 % is up to 0.00087 at 941 Mbit/s and two
            // CPUs, rounding of the printed demand up to 0.0005; the worst row is off by 0.00124.
            let ours = service_demand_us_per_kib(number(cpu) / 100.0, 2, bits_per_s).unwrap();
            assert!((ours - number(demand)).abs() < 0.00125, "{row}: {ours}");
            let back = cpu_ratio(ours, 2, bits_per_s).unwrap();
            assert!((back - number(cpu) / 100.0).abs() < 1e-12, "{row}: {back}");
            rows += 1;
        }
        assert_eq!(rows, 63);
    }

    #[test]
    fn nothing_moved_has_no_cost_per_kib() {
        assert_eq!(service_demand_us_per_kib(0.5, 2, 0.0), None);
        assert_eq!(cpu_ratio(3.0, 0, 1e9), None);
    }
}
