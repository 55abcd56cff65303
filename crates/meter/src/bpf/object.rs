//! An eBPF object in the kernel: loaded, attached, its variables mapped.

use std::error::Error;
use std::os::fd::AsFd;

use libbpf_rs::btf::{Btf, types::Typedef};
use libbpf_rs::{ErrorKind, Link, MapCore, Object, ObjectBuilder};
use memmap2::{Mmap, MmapOptions};

use tcpcost_study::Measure;

use crate::MeterError;

/// Programs that run at their tracepoints until this is dropped.
pub(super) struct Attached {
    _links: Vec<Link>,
    /// The object's zero-initialised variables, as the programs see them.
    variables: Mmap,
}

impl Attached {
    /// Loads an object with its `targ` set to these bytes, whose variables begin with `length` bytes
    /// that the caller knows. Programs of tracepoints that this kernel does not have are left out.
    pub(super) fn new(
        meter: &'static str,
        object: &[u8],
        targ: &[u8],
        length: usize,
    ) -> Result<Attached, MeterError> {
        let failed = |doing, error| failure(meter, doing, &error);
        let object = load(meter, object, targ)?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            links.push(program.attach().map_err(|error| failed("attach", error))?);
        }
        let variables = variables(meter, &object, length)?;
        Ok(Attached {
            _links: links,
            variables,
        })
    }

    /// The first of the variables' bytes, at the start of a page.
    pub(super) fn variables(&self) -> *const u8 {
        self.variables.as_ptr()
    }
}

/// The object's zero-initialised variables, which begin with `length` bytes that the caller knows.
pub(super) fn variables(
    meter: &'static str,
    object: &Object,
    length: usize,
) -> Result<Mmap, MeterError> {
    for map in object.maps() {
        let is_known = map.value_size() as usize >= length;
        if is_known && map.name().to_string_lossy().ends_with(".bss") {
            // SAFETY: the memory is the kernel's own, of at least this length, and stays as long as
            // it is mapped. It changes under us: readers copy it word by word with volatile loads
            // and take no reference into it.
            let mapped = unsafe { MmapOptions::new().len(length).map(&map.as_fd()) };
            return mapped.map_err(|error| failure(meter, "map variables", &error.into()));
        }
    }
    let reason = "the object's variables are not those of its reader".to_string();
    Err(MeterError::Load { meter, reason })
}

/// Loads an object, attached to nothing yet.
pub(super) fn load(meter: &'static str, object: &[u8], targ: &[u8]) -> Result<Object, MeterError> {
    let failed = |doing, error| failure(meter, doing, &error);
    // What libbpf has to say is for its developers; the error has what a user can act on.
    libbpf_rs::set_print(None);
    let btf = Btf::from_vmlinux().map_err(|error| failed("read the kernel's BTF", error))?;
    let mut open = ObjectBuilder::default()
        .name(meter)
        .and_then(|builder| builder.open_memory(object))
        .map_err(|error| failed("open", error))?;
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        if let Some(tracepoint) = section.strip_prefix("tp_btf/") {
            let known = btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}"));
            program.set_autoload(known.is_some());
        }
    }
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(targ)
                .map_err(|error| failed("set the filters", error))?;
        }
    }
    open.load().map_err(|error| failed("load", error))
}

/// An error of libbpf as ours.
pub(super) fn failure(meter: &'static str, doing: &str, error: &libbpf_rs::Error) -> MeterError {
    let reason = reason(meter, doing, error);
    MeterError::Load { meter, reason }
}

/// One line: what was done, what the kernel said, what to do.
fn reason(meter: &str, doing: &str, error: &libbpf_rs::Error) -> String {
    let mut root: &dyn Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    let said = root.to_string();
    let said = said.split(" (os error").next().unwrap_or(&said);
    let needs = match error.kind() {
        ErrorKind::PermissionDenied => "needs CAP_BPF and CAP_PERFMON; ",
        ErrorKind::NotFound => "needs a kernel with BTF, CONFIG_DEBUG_INFO_BTF; ",
        _ => "",
    };
    let without = if Measure::METERS.iter().any(|(name, _)| *name == meter) {
        format!("drop \"{meter}\" from meters")
    } else {
        format!("leave {meter} out")
    };
    format!("{doing}: {said} ({needs}or {without})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_tried_and_what_to_do() {
        let refused = libbpf_rs::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(
            reason("exact", "load", &refused),
            "load: Operation not permitted (needs CAP_BPF and CAP_PERFMON; or drop \"exact\" from meters)"
        );
        let strange = libbpf_rs::Error::from_raw_os_error(libc::E2BIG);
        assert_eq!(
            reason("exact", "attach", &strange),
            "attach: Argument list too long (or drop \"exact\" from meters)"
        );
    }
}
