#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tcpcost_tcp_fuzz::wire(data));
