//! Temporary files.

use std::io::Write;

use tempfile::NamedTempFile;

use crate::error::GuestError;

/// Temporary file with this content, which is removed with the returned value.
pub(crate) fn temporary(content: &[u8]) -> Result<NamedTempFile, GuestError> {
    let folder = std::env::temp_dir();
    let mut file = NamedTempFile::new().map_err(GuestError::file("create", &folder))?;
    file.write_all(content)
        .map_err(GuestError::file("write", &folder))?;
    Ok(file)
}
