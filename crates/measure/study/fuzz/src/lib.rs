//! Fuzz targets, which `cargo test` also runs over their corpus.

use tcpcost_study::{ConvertedProfile, Study, UperfSurroundings, convert_uperf_profile};

/// Converts any bytes as a uperf profile. The result must be a valid study, and an error must be
/// one line.
pub fn uperf(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let surroundings = UperfSurroundings {
        variable: &|name| match name {
            "h" => Some("server".to_string()),
            "n" => Some("3".to_string()),
            _ => None,
        },
        files: &|_| Ok(vec![1000, 2000]),
    };
    match convert_uperf_profile("fuzz", text, "fuzz.xml", &surroundings) {
        Ok(ConvertedProfile { toml, notes }) => {
            if let Err(error) = Study::parse("fuzz", &toml, "fuzz.toml") {
                panic!("{error}\n{toml}");
            }
            assert!(notes.iter().all(|note| !note.contains('\n')));
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n') && error.len() < 1000, "{error}");
        }
    }
}
