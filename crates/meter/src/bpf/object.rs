//! An eBPF object in the kernel: loaded, attached, its variables mapped.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::btf::{Btf, types::Typedef};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder};
use memmap2::{MmapMut, MmapOptions};

use tcpcost_study::Measure;

use crate::MeterError;

/// Programs that run at their tracepoints until this is dropped or detached.
pub(super) struct Attached {
    meter: &'static str,
    /// By the name of the program.
    links: Vec<(String, Link)>,
    object: Object,
    /// The object's zero-initialised variables, as the programs see them.
    variables: MmapMut,
}

impl Attached {
    /// Loads an object with its `targ` set to these bytes, whose variables begin with `length` bytes
    /// that the caller knows. Programs of tracepoints that this kernel does not have are left out, and maps
    /// that these bytes make needless.
    pub(super) fn new(
        meter: &'static str,
        object: &[u8],
        targ: &[u8],
        without_maps: &[&str],
        length: usize,
    ) -> Result<Attached, MeterError> {
        let object = load_without(meter, object, targ, without_maps)?;
        let variables = variables(meter, &object, length)?;
        let mut attached = Attached {
            meter,
            links: Vec::new(),
            object,
            variables,
        };
        attached.attach()?;
        Ok(attached)
    }

    /// Lets those programs run that do not yet. Each takes some 40 µs of CPU, and the kernel may wait for some
    /// ms until those that were detached before are at rest.
    pub(super) fn attach(&mut self) -> Result<(), MeterError> {
        for program in self.object.progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            if self.links.iter().any(|(of, _)| *of == name) {
                continue;
            }
            let link = program.attach();
            let link = link.map_err(|error| failure(self.meter, "attach", &error))?;
            self.links.push((name, link));
        }
        Ok(())
    }

    /// Stops those that this names; variables stay as they are.
    pub(super) fn detach(&mut self, is_named: impl Fn(&str) -> bool) {
        self.links.retain(|(name, _)| !is_named(name));
    }

    /// Keys and values of a map; none where it was left out or cannot be read.
    pub(super) fn entries(&self, map: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let mut maps = self.object.maps();
        let map = maps.find(|one| one.name() == map && one.as_fd().as_raw_fd() >= 0);
        let mut entries = Vec::new();
        if let Some(map) = map
            && let Ok(found) = map.lookup_batch(1024, MapFlags::ANY, MapFlags::ANY)
        {
            entries.extend(found);
        }
        entries.into_iter()
    }

    /// The first of the variables' bytes, at the start of a page.
    pub(super) fn variables(&self) -> *mut u8 {
        self.variables.as_ptr().cast_mut()
    }
}

/// The object's zero-initialised variables, which begin with `length` bytes that the caller knows.
pub(super) fn variables(
    meter: &'static str,
    object: &Object,
    length: usize,
) -> Result<MmapMut, MeterError> {
    for map in object.maps() {
        let is_known = map.value_size() as usize >= length;
        if is_known && map.name().to_string_lossy().ends_with(".bss") {
            // SAFETY: the memory is the kernel's own, of at least this length, and stays as long as
            // it is mapped. It changes under us: readers copy it word by word with volatile loads
            // and take no reference into it.
            let mapped = unsafe { MmapOptions::new().len(length).map_mut(&map.as_fd()) };
            return mapped.map_err(|error| failure(meter, "map variables", &error.into()));
        }
    }
    let reason = "the object's variables are not those of its reader".to_string();
    Err(MeterError::Load { meter, reason })
}

/// Loads an object, attached to nothing yet.
pub(super) fn load(meter: &'static str, object: &[u8], targ: &[u8]) -> Result<Object, MeterError> {
    load_without(meter, object, targ, &[])
}

fn load_without(
    meter: &'static str,
    object: &[u8],
    targ: &[u8],
    without_maps: &[&str],
) -> Result<Object, MeterError> {
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
        if without_maps.iter().any(|name| map.name() == *name) {
            map.set_autocreate(false)
                .map_err(|error| failed("leave a map out", error))?;
        }
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
