//! Parser of BTF, the kernel's type information (Documentation/bpf/btf.rst): finds a type by its
//! name.

/// Returns the index of the first type of this kind and name. `None` if there is none, or if the
/// data is not BTF of this machine's byte order.
pub fn type_id(btf: &[u8], kind: u32, name: &str) -> Option<u32> {
    let half = |at: usize| Some(u16::from_ne_bytes(btf.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| {
        Some(u32::from_ne_bytes(
            btf.get(at..at.checked_add(4)?)?.try_into().ok()?,
        ))
    };
    let offset = |at: usize| usize::try_from(word(at)?).ok();
    if half(0)? != MAGIC {
        return None;
    }
    let header = offset(4)?;
    let types_at = header.checked_add(offset(8)?)?;
    let types = btf.get(types_at..types_at.checked_add(offset(12)?)?)?;
    let strings_at = header.checked_add(offset(16)?)?;
    let strings = btf.get(strings_at..strings_at.checked_add(offset(20)?)?)?;

    let mut rest = types;
    // Type 0 is void and not in the list.
    for id in 1.. {
        let (head, after) = rest.split_at_checked(12)?;
        let field =
            |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let info = field(4);
        if (info >> 24) & 0x1f == kind && is_at(strings, field(0), name) {
            return Some(id);
        }
        let members = usize::try_from(info & 0xffff).ok()?;
        rest = after.get(tail((info >> 24) & 0x1f, members)?..)?;
    }
    None
}

/// Returns the bytes after the twelve that all types begin with. `None` for an unknown kind.
fn tail(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union, data section, 64-bit enumeration.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumeration, function prototype.
        6 | 13 => 8 * members,
        // Pointer, forward, typedef, qualifiers, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn is_at(strings: &[u8], at: u32, name: &str) -> bool {
    let found = usize::try_from(at).ok().and_then(|at| strings.get(at..));
    found.is_some_and(|found| {
        found
            .strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    })
}

/// BTF_KIND_TYPEDEF.
pub const TYPEDEF: u32 = 8;

const MAGIC: u16 = 0xeb9f;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// BTF with an int, a structure of one member, and a typedef `ab`.
    fn small() -> Vec<u8> {
        let strings = b"\0int\0s\0abc\0ab\0";
        let types: [u32; 13] = [
            1,
            1 << 24,
            4,
            32, // int
            5,
            4 << 24 | 1,
            4,
            0,
            1,
            0, // struct s { int; }
            11,
            8 << 24,
            1, // typedef int ab
        ];
        let mut btf = MAGIC.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        for word in [24, 0, 52, 52, u32::try_from(strings.len()).unwrap()] {
            btf.extend(word.to_ne_bytes());
        }
        btf.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        btf.extend(strings);
        btf
    }

    #[test]
    fn a_type_is_found_by_kind_and_whole_name() {
        let btf = small();
        assert_eq!(type_id(&btf, TYPEDEF, "ab"), Some(3));
        assert_eq!(type_id(&btf, 4, "s"), Some(2));
        assert_eq!(type_id(&btf, TYPEDEF, "a"), None);
        assert_eq!(type_id(&btf, TYPEDEF, "int"), None);
    }

    #[test]
    fn this_kernels_types_are_understood() {
        let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            tcpcost_testbed::skip("this kernel has no BTF");
            return;
        };
        assert!(type_id(&btf, 4, "task_struct").is_some());
        assert_eq!(type_id(&btf, TYPEDEF, "no_such_type"), None);
    }

    proptest! {
        #[test]
        fn no_content_panics(at in 0..80usize, byte in any::<u8>(), end in 0..110usize) {
            let mut btf = small();
            if let Some(place) = btf.get_mut(at) {
                *place = byte;
            }
            let end = end.min(btf.len());
            let _ = type_id(&btf[..end], TYPEDEF, "ab");
        }
    }
}
