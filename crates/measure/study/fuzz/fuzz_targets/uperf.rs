#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tcpcost_study_fuzz::uperf(data));
