//! Functions of a guest's kernel: its kallsyms, which its init sends in pieces over the serial port.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Name under which instructions of user space are counted.
pub const USER: &str = "[user]";

/// Functions of the guest's kernel, by address.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    /// Address and name of each, in order of the addresses.
    pub(crate) sorted: Vec<(u64, String)>,
}

impl Symbols {
    /// Decodes lines from a guest: pieces of a gzip'd kallsyms in base64.
    pub(crate) fn decode<'a>(pieces: impl Iterator<Item = &'a str>) -> Symbols {
        let decoded: Option<Vec<Vec<u8>>> =
            pieces.map(|piece| STANDARD.decode(piece).ok()).collect();
        let zipped = decoded.unwrap_or_default().concat();
        let mut text = String::new();
        // After an incomplete transfer there are no symbols.
        let read = flate2::read::GzDecoder::new(&zipped[..]).read_to_string(&mut text);
        read.map_or_else(|_| Symbols::default(), |_| Symbols::parse(&text))
    }

    /// Parses lines `ffffffff81000000 T name [module]`; keeps functions alone.
    pub(crate) fn parse(kallsyms: &str) -> Symbols {
        let mut sorted: Vec<(u64, String)> = kallsyms
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                let name = words.next()?;
                // The compiler's copies of a function count as that function.
                let name = name.split('.').next()?;
                "tTwW".contains(kind).then(|| (address, name.to_string()))
            })
            .collect();
        sorted.sort_by_key(|(address, _)| *address);
        Symbols { sorted }
    }

    /// True if there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Name of the function that has this address.
    pub(crate) fn name(&self, address: u64) -> &str {
        if address < 1 << 63 {
            return USER;
        }
        let behind = self.sorted.partition_point(|(start, _)| *start <= address);
        let found = behind.checked_sub(1).map(|at| &self.sorted[at]);
        match found {
            Some((start, name)) if address - start < FUNCTION_MOST => name,
            _ => "[no symbol]",
        }
    }
}

/// Limit of a function's length, bytes; no function is as long. Addresses after the last symbol of
/// a region belong to eBPF programs that were gone when the symbols were read.
const FUNCTION_MOST: u64 = 1 << 16;

/// Lines by which a guest's init sends its kernel's symbols.
pub(crate) fn encode(path: &Path) -> std::io::Result<Vec<String>> {
    const PIECE: usize = 3 * 1024;
    let mut zipped = Vec::new();
    flate2::read::GzEncoder::new(File::open(path)?, flate2::Compression::fast())
        .read_to_end(&mut zipped)?;
    Ok(zipped
        .chunks(PIECE)
        .map(|piece| STANDARD.encode(piece))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000100 t tcp_ack.isra.0\nffffffff81000200 d data\nffffffffc0000000 t veth_xmit [veth]\n";

    #[test]
    fn symbols_survive_their_way_over_the_serial_port() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), KALLSYMS).unwrap();
        let pieces = encode(file.path()).unwrap();
        let decode = |pieces: &[String]| Symbols::decode(pieces.iter().map(String::as_str));
        assert_eq!(decode(&pieces).sorted.len(), 3);
        assert!(decode(&pieces[..0]).is_empty());
    }
}
