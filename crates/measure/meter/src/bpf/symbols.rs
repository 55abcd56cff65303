//! Addresses of kernel symbols by name. The list of all symbols would take the kernel 45 ms of CPU time.

use std::mem::offset_of;

use libbpf_rs::{ObjectBuilder, ProgramInput, ProgramMut};

use super::layout::symbols::{Asked, NAME};

/// Addresses of kernel symbols. `None` if a symbol or the privilege is missing, or the kernel is older than 5.16.
pub(super) fn addresses_of<const COUNT: usize>(names: [&str; COUNT]) -> Option<[u64; COUNT]> {
    libbpf_rs::set_print(None);
    let object = ObjectBuilder::default().open_memory(OBJECT).ok()?;
    let object = object.load().ok()?;
    let program = object.progs_mut().next()?;
    let mut addresses = [0; COUNT];
    for (address, name) in addresses.iter_mut().zip(names) {
        *address = address_of(&program, name)?;
    }
    Some(addresses)
}

fn address_of(program: &ProgramMut<'_>, name: &str) -> Option<u64> {
    if name.len() >= NAME {
        return None;
    }
    let mut asked = [0; size_of::<Asked>()];
    asked[..name.len()].copy_from_slice(name.as_bytes());
    let input = ProgramInput {
        context_in: Some(&mut asked),
        ..ProgramInput::default()
    };
    if program.test_run(input).ok()?.return_value != 0 {
        return None;
    }
    let (address, _) = asked[offset_of!(Asked, address)..].split_first_chunk()?;
    Some(u64::from_ne_bytes(*address)).filter(|address| *address != 0)
}

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/symbols.bpf.o"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_the_list() {
        let Some([address, other]) = addresses_of(["tcp_sendmsg", "tcp_recvmsg"]) else {
            return tcpcost_testbed::skip("the kernel does not look symbols up for this user");
        };
        let listed = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let line = listed.lines().find(|line| line.ends_with(" T tcp_sendmsg"));
        let (listed, _) = line.unwrap().split_once(' ').unwrap();
        assert_eq!(u64::from_str_radix(listed, 16).unwrap(), address);
        assert_ne!(address, other);
        assert_eq!(addresses_of(["tcp_sendmsg", "no_such_symbol"]), None);
        assert_eq!(addresses_of([&*"long".repeat(20)]), None);
    }
}
