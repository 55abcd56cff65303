#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let changed = tcpcost_testbed::change_json(&data[..size], seed.into());
    match seed % 4 {
        0 => fuzzer_mutate(data, size, max_size),
        _ if changed.len() > max_size => fuzzer_mutate(data, size, max_size),
        _ => {
            data[..changed.len()].copy_from_slice(&changed);
            changed.len()
        }
    }
});

fuzz_target!(|data: &[u8]| tcpcost_agent_fuzz::answer(data));
