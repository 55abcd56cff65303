//! An eBPF object in the kernel: loaded, attached, its variables mapped.

#![allow(unsafe_code, reason = "calls of libbpf")]

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::btf::{
    Btf,
    types::{Func, Typedef},
};
use libbpf_rs::{
    ErrorKind, Iter, Link, MapCore, MapFlags, MapHandle, MapInfo, Object, ObjectBuilder,
    OpenMapMut, OpenObject, PrintLevel,
};
use memmap2::{MmapMut, MmapOptions};

use tcpcost_counts::{MeterName, Printable};

use super::cgroup;
use crate::{MeterError, Needs};

/// Programs that run at their tracepoints until this is dropped or detached, or the variables of those that
/// another process of this host has loaded.
pub(super) struct Attached {
    meter: MeterName,
    /// By the name of the program.
    links: Vec<(String, Link)>,
    /// None of another process' programs.
    object: Option<Object>,
    /// The maps whose room was set, by name.
    maps: Vec<MapHandle>,
    /// The object's zero-initialised variables, as the programs see them.
    variables: Arc<MmapMut>,
    handle: Option<String>,
}

/// How many entries a map has room for; `None`: it is left out.
pub(super) struct Room {
    /// Its name. To leave out programs alone: the beginning of their names.
    pub(super) map: &'static str,
    /// Entries.
    pub(super) entries: Option<u32>,
}

impl Attached {
    /// Loads an object with its `targ` set to these bytes, whose variables begin with `length` bytes
    /// that the caller knows. Programs of tracepoints that this kernel does not have are left out, and those named
    /// `instead_of_` one that it has. A map of `rooms` has room for so many, or is left out, and with it the programs whose
    /// names begin with its own.
    pub(super) fn new(
        meter: MeterName,
        object: &[u8],
        targ: &[u8],
        rooms: &[Room],
        length: usize,
    ) -> Result<Attached, MeterError> {
        Attached::loaded(
            meter,
            load_with(meter, object, targ, rooms, None)?,
            rooms,
            length,
        )
    }

    /// Loads an object without filters, one of whose maps is this one of another object.
    pub(super) fn sharing(
        meter: MeterName,
        object: &[u8],
        numbers: &Table,
        length: usize,
    ) -> Result<Attached, MeterError> {
        let object = load_with(meter, object, &[], &[], Some(&numbers.map))?;
        Attached::loaded(meter, object, &[], length)
    }

    fn loaded(
        meter: MeterName,
        object: Object,
        rooms: &[Room],
        length: usize,
    ) -> Result<Attached, MeterError> {
        let failed = |error| failure(meter, "read the maps", &error);
        let variables = variables(meter, &object, length)?;
        let mut maps = Vec::new();
        let mut ids = Vec::new();
        for map in object.maps() {
            // One that was left out has a descriptor, too, but of no map.
            let is_kept = |room: &Room| room.entries.is_some() && map.name() == room.map;
            let is_kept = rooms.iter().any(is_kept);
            if is_kept || is_variables(&map) {
                ids.push(MapInfo::new(map.as_fd()).map_err(failed)?.info.id);
            }
            if is_kept {
                maps.push(MapHandle::try_from(&map).map_err(failed)?);
            }
        }
        let mut attached = Attached {
            meter,
            links: Vec::new(),
            object: Some(object),
            maps,
            variables: variables.into(),
            handle: handle(&ids),
        };
        attached.attach()?;
        Ok(attached)
    }

    /// The variables and maps of programs that another process of this host has loaded, by the handle that
    /// [`Attached::handle`] gave it. It takes CAP_SYS_ADMIN.
    pub(super) fn of(
        meter: MeterName,
        handle: &str,
        length: usize,
    ) -> Result<Attached, MeterError> {
        let failed = |error| failure(meter, "share programs", &error);
        let ids = ids(handle).ok_or_else(|| {
            MeterError::refused(meter, "share programs: they belong to another host")
        })?;
        let (mut variables, mut maps) = (None, Vec::new());
        for id in ids {
            let map = MapHandle::from_map_id(id).map_err(failed)?;
            if is_variables(&map) {
                variables = Some(map_variables(meter, &map, length)?);
            } else {
                maps.push(map);
            }
        }
        Ok(Attached {
            meter,
            links: Vec::new(),
            object: None,
            maps,
            variables: variables.ok_or_else(|| strange(meter))?.into(),
            handle: None,
        })
    }

    /// By what another process of this host finds these programs, while they are loaded; `None` of another's.
    pub(super) fn handle(&self) -> Option<String> {
        self.handle.clone()
    }

    /// Lets those programs run that do not yet. Each takes some 40 µs of CPU, and the kernel may wait for some
    /// ms until those that were detached before are idle.
    pub(super) fn attach(&mut self) -> Result<(), MeterError> {
        let programs = self.object.iter().flat_map(|object| object.progs_mut());
        for program in programs.filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            let section = program.section().to_string_lossy().into_owned();
            let is_attached = self.links.iter().any(|(of, _)| *of == name);
            if is_attached || section.starts_with(ITERATOR) {
                continue;
            }
            let link = match CGROUP.iter().any(|kind| section.starts_with(kind)) {
                true => program.attach_cgroup(cgroup::root(self.meter)?.as_raw_fd()),
                false => program.attach(),
            };
            let link = link.map_err(|error| failure(self.meter, "attach", &error))?;
            self.links.push((name, link));
        }
        Ok(())
    }

    /// An iterator's program.
    ///
    /// # Errors
    /// It was left out, or the kernel refuses it.
    pub(super) fn listing(&self, name: &str) -> Result<Listing, MeterError> {
        let meter = self.meter;
        let mut programs = self.object.iter().flat_map(|object| object.progs_mut());
        let program = programs.find(|program| program.name() == name);
        let link = program.ok_or_else(|| strange(meter))?.attach();
        let link = link.map_err(|error| failure(meter, "attach", &error))?;
        Ok(Listing { meter, link })
    }

    /// True if none of its programs is attached: this kernel has none of their tracepoints.
    pub(super) fn is_idle(&self) -> bool {
        self.links.is_empty()
    }

    /// True if this program runs here. False for another process' programs.
    pub(super) fn runs(&self, name: &str) -> bool {
        self.links.iter().any(|(of, _)| of == name)
    }

    /// Stops those that this names; variables stay as they are.
    pub(super) fn detach(&mut self, is_named: impl Fn(&str) -> bool) {
        self.links.retain(|(name, _)| !is_named(name));
    }

    /// Map of this name, among those whose room was set. `None` if it was omitted.
    fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.iter().find(|map| map.name() == name)
    }

    /// An array that programs and readers share, and how many values of this size it has room for.
    pub(super) fn array(&self, name: &str, value: usize) -> Result<(MmapMut, usize), MeterError> {
        let map = self.map(name).ok_or_else(|| strange(self.meter))?;
        let room = map.max_entries() as usize;
        match map.value_size() as usize == value {
            true => Ok((mapped(self.meter, map, room * value)?, room)),
            false => Err(strange(self.meter)),
        }
    }

    /// Keys and values of a map; none where it was left out or cannot be read.
    pub(super) fn entries(&self, name: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let mut entries = Vec::new();
        if let Some(map) = self.map(name)
            && let Ok(found) = map.lookup_batch(1024, MapFlags::ANY, MapFlags::ANY)
        {
            entries.extend(found);
        }
        entries.into_iter()
    }

    /// A map that is written from here, too.
    pub(super) fn table(&self, name: &str) -> Result<Table, MeterError> {
        let meter = self.meter;
        let map = self.map(name).ok_or_else(|| strange(meter))?;
        let map =
            MapHandle::try_from(map).map_err(|error| failure(meter, "share a map", &error))?;
        let changes = None;
        Ok(Table {
            meter,
            map,
            changes,
        })
    }

    /// Table of a map whose values programs remember. Each change increments the variable at this offset.
    pub(super) fn remembered(&self, name: &str, offset: usize) -> Result<Table, MeterError> {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.variables.len());
        let changes = Some((Arc::clone(&self.variables), offset));
        let table = self.table(name)?;
        Ok(Table { changes, ..table })
    }

    /// The first of the variables' bytes, at the start of a page.
    pub(super) fn variables(&self) -> *mut u8 {
        self.variables.as_ptr().cast_mut()
    }
}

/// True if the kernel has a function of this name, by its BTF.
pub(super) fn kernel_has_function(name: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<Func<'_>>(name).is_some())
}

/// How sections of programs begin that are attached to a cgroup,
const CGROUP: [&str; 2] = ["cgroup", "sockops"];
/// and that run when they are asked to.
const ITERATOR: &str = "iter/";

/// A program that the kernel runs for each of its objects of a kind, when it is asked to.
#[derive(Debug)]
pub(super) struct Listing {
    meter: MeterName,
    link: Link,
}

impl Listing {
    /// Runs it once over all.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn run(&self) -> Result<(), MeterError> {
        let failed = |error| failure(self.meter, "iterate", &error);
        let mut iterator = Iter::new(&self.link).map_err(failed)?;
        let all = io::copy(&mut iterator, &mut io::sink());
        all.map(|_| ()).map_err(|error| failed(error.into()))
    }
}

/// A hash table in the kernel.
#[derive(Debug)]
pub(super) struct Table {
    meter: MeterName,
    map: MapHandle,
    /// Variables of the programs, and where they count changes of this map.
    changes: Option<(Arc<MmapMut>, usize)>,
}

impl Table {
    /// Gives a key this value, or takes it out.
    ///
    /// # Errors
    /// The map is full.
    pub(super) fn set(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), MeterError> {
        let done = match value {
            Some(value) => self.map.update(key, value, MapFlags::ANY),
            None => match self.map.delete(key) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                done => done,
            },
        };
        if let Some((variables, offset)) = &self.changes {
            // SAFETY: `remembered` checked the offset; programs change the word atomically, too.
            let count = unsafe {
                AtomicU32::from_ptr(variables.as_ptr().add(*offset).cast_mut().cast::<u32>())
            };
            count.fetch_add(1, Ordering::SeqCst);
        }
        done.map_err(|error| failure(self.meter, "write a map", &error))
    }
}

/// A handle of maps with these ids: it holds on this host until it starts anew.
fn handle(ids: &[u32]) -> Option<String> {
    let ids = ids.iter().map(|id| format!(" {id}"));
    Some(boot()? + &ids.collect::<String>())
}

/// The ids in a handle; `None` of another host's.
fn ids(handle: &str) -> Option<Vec<u32>> {
    let (boot, ids) = handle.split_once(' ')?;
    let ids: Option<Vec<u32>> = ids.split(' ').map(|id| id.parse().ok()).collect();
    ids.filter(|_| Some(boot) == self::boot().as_deref())
}

/// Which kernel this is, since when: random(4).
fn boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_string())
}

/// The object's zero-initialised variables, which begin with `length` bytes that the caller knows.
pub(super) fn variables(
    meter: MeterName,
    object: &Object,
    length: usize,
) -> Result<MmapMut, MeterError> {
    for map in object.maps() {
        if is_variables(&map) {
            return map_variables(meter, &map, length);
        }
    }
    Err(strange(meter))
}

fn is_variables(map: &impl MapCore) -> bool {
    map.name().to_string_lossy().ends_with(".bss")
}

fn map_variables(
    meter: MeterName,
    map: &impl MapCore,
    length: usize,
) -> Result<MmapMut, MeterError> {
    if (map.value_size() as usize) < length {
        return Err(strange(meter));
    }
    mapped(meter, map, length)
}

fn mapped(meter: MeterName, map: &impl MapCore, length: usize) -> Result<MmapMut, MeterError> {
    // SAFETY: the memory is the kernel's own, of at least this length, and stays as long as
    // it is mapped. It changes under us: readers copy it word by word with volatile loads
    // and take no reference into it.
    let mapped = unsafe { MmapOptions::new().len(length).map_mut(&map.as_fd()) };
    mapped.map_err(|error| failure(meter, "map variables", &error.into()))
}

fn strange(meter: MeterName) -> MeterError {
    MeterError::refused(meter, "the object's variables are not those of its reader")
}

/// Loads an object, attached to nothing yet.
pub(super) fn load(meter: MeterName, object: &[u8], targ: &[u8]) -> Result<Object, MeterError> {
    load_with(meter, object, targ, &[], None)
}

fn load_with(
    meter: MeterName,
    object: &[u8],
    targ: &[u8],
    rooms: &[Room],
    shared: Option<&MapHandle>,
) -> Result<Object, MeterError> {
    let failed = |doing, error| failure(meter, doing, &error);
    // Output of libbpf is for its developers; the error has what a user can act on.
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_log)));
    LOG.take();
    // libbpf's reason is "No such process", whatever is missing.
    let btf = Btf::from_vmlinux().map_err(|_| MeterError::Unavailable {
        meter,
        tried: "read the kernel's BTF".to_string(),
        source: None,
        needs: Some(Needs::Kernel(
            "/sys/kernel/btf/vmlinux: a kernel with CONFIG_DEBUG_INFO_BTF",
        )),
    })?;
    let mut open = ObjectBuilder::default()
        .name(meter.name())
        .and_then(|builder| builder.open_memory(object))
        .map_err(|error| failed("open", error))?;
    choose_programs(&mut open, &btf, rooms);
    for mut map in open.maps_mut() {
        prepare_map(&mut map, targ, rooms, shared)
            .map_err(|(doing, error)| failed(doing, error))?;
    }
    open.load()
        .map_err(|error| refusal(failed("load", error), &LOG.take()))
}

thread_local! {
    /// The verifier's log of the last program that it refused on this thread.
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the verifier's log, of all that libbpf prints.
fn keep_log(_: PrintLevel, text: String) {
    if text.contains(LOG_BEGINS) {
        LOG.set(text);
    }
}

const LOG_BEGINS: &str = "-- BEGIN PROG LOAD LOG --";

/// Adds to an error of loading what the kernel lacks or, if that is not known, what its verifier says.
fn refusal(error: MeterError, log: &str) -> MeterError {
    let Some(said) = verdict(log) else {
        return error;
    };
    // The verifier refuses with "Permission denied", too: what it says is the reason, and no capability is missing.
    let MeterError::Unavailable { meter, source, .. } = error else {
        return error;
    };
    let lack = LACKS.iter().find(|(words, _)| said.contains(words));
    MeterError::Unavailable {
        meter,
        source,
        tried: match lack {
            Some(_) => "load".to_string(),
            None => format!("load (the verifier says \"{said}\")"),
        },
        needs: lack.map(|(_, needs)| Needs::Kernel(needs)),
    }
}

/// The verifier's last line but for its statistics, shortened: the reason.
fn verdict(log: &str) -> Option<String> {
    let (_, log) = log.split_once(LOG_BEGINS)?;
    let is_said = |line: &&str| {
        !line.is_empty() && !line.starts_with("processed ") && !line.starts_with("-- END")
    };
    let said = log.lines().map(str::trim).rfind(is_said)?;
    let said: String = said.chars().take(120).collect();
    Some(Printable::from(said).to_string())
}

/// Messages of the verifier of a kernel that lacks something, and the kernel that is needed.
const LACKS: [(&str, &str); 2] = [
    (
        "uses reserved fields",
        "Linux 5.12 or newer, with atomic operations that return a value",
    ),
    // The helper's lock (security/lockdown, LOCKDOWN_BPF_READ_KERNEL).
    (
        "bpf_probe_read",
        "a kernel that is not locked down to confidentiality: /sys/kernel/security/lockdown",
    ),
];

/// Chooses the programs to load: not those without room, nor those whose tracepoint this kernel does not have
/// or has a better program for.
fn choose_programs(open: &mut OpenObject, btf: &Btf<'_>, rooms: &[Room]) {
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        let name = program.name().to_string_lossy().into_owned();
        let is_known = |tracepoint: &str| {
            let name = format!("btf_trace_{tracepoint}");
            btf.type_by_name::<Typedef<'_>>(&name).is_some()
        };
        let is_left_out = |room: &Room| room.entries.is_none() && name.starts_with(room.map);
        if rooms.iter().any(is_left_out) {
            program.set_autoload(false);
        } else if let Some(tracepoint) = section.strip_prefix("tp_btf/") {
            let better = name.strip_prefix("instead_of_");
            program.set_autoload(is_known(tracepoint) && !better.is_some_and(is_known));
        }
    }
}

/// Sets the size and the first contents of a map. The error says what failed.
fn prepare_map(
    map: &mut OpenMapMut<'_>,
    targ: &[u8],
    rooms: &[Room],
    shared: Option<&MapHandle>,
) -> Result<(), (&'static str, libbpf_rs::Error)> {
    if let Some(shared) = shared.filter(|shared| shared.name() == map.name()) {
        map.reuse_fd(shared.as_fd())
            .map_err(|error| ("share a map", error))?;
    }
    if let Some(room) = rooms.iter().find(|room| map.name() == room.map) {
        match room.entries {
            Some(most) => map
                .set_max_entries(most)
                .map_err(|error| ("size a map", error))?,
            None => map
                .set_autocreate(false)
                .map_err(|error| ("leave a map out", error))?,
        }
    }
    if map.name().to_string_lossy().ends_with(".rodata") {
        map.set_initial_value(targ)
            .map_err(|error| ("set the filters", error))?;
    }
    Ok(())
}

/// An error of libbpf as ours.
pub(super) fn failure(meter: MeterName, doing: &str, error: &libbpf_rs::Error) -> MeterError {
    let mut root: &dyn Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    let needs = match error.kind() {
        ErrorKind::PermissionDenied => Some(Needs::Capabilities("CAP_BPF and CAP_PERFMON")),
        ErrorKind::NotFound => Some(Needs::Kernel("a kernel with BTF, CONFIG_DEBUG_INFO_BTF")),
        _ => None,
    };
    // libbpf-rs keeps the number to itself, but for the text.
    let said = root.to_string();
    let errno = said
        .rsplit_once("(os error ")
        .and_then(|(_, number)| number.strip_suffix(')'));
    let errno = errno.and_then(|number| number.parse().ok());
    let source = errno.map_or_else(
        || io::Error::other(said.clone()),
        io::Error::from_raw_os_error,
    );
    MeterError::Unavailable {
        meter,
        tried: doing.to_string(),
        source: Some(source),
        needs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_program_says_what_the_kernel_lacks_or_what_its_verifier_says() {
        let refused = |said: &str| {
            let log = format!(
                "libbpf: prog 'x': {LOG_BEGINS}\n0: R1=ctx\n{said}\nprocessed 9 insns (limit 1000000)\n-- END PROG LOAD LOG --\n"
            );
            let error = libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
            refusal(failure(MeterName::Exact, "load", &error), &log).cause()
        };
        assert_eq!(
            refused("BPF_STX uses reserved fields"),
            "load: Invalid argument (needs Linux 5.12 or newer, with atomic operations that return a value)"
        );
        assert_eq!(
            refused("program of this type cannot use helper bpf_probe_read#4"),
            "load: Invalid argument (needs a kernel that is not locked down to confidentiality: /sys/kernel/security/lockdown)"
        );
        assert_eq!(
            refused("R1 is a scalar"),
            "load (the verifier says \"R1 is a scalar\"): Invalid argument"
        );
        let error = libbpf_rs::Error::from_raw_os_error(libc::EPERM);
        let error = failure(MeterName::Exact, "load", &error);
        assert!(refusal(error, "").cause().contains("CAP_BPF"));
    }

    #[test]
    fn an_error_of_libbpf_keeps_its_number_and_says_what_it_needs() {
        let refused = libbpf_rs::Error::from_raw_os_error(libc::EPERM);
        let error = failure(MeterName::Exact, "load", &refused);
        assert_eq!(
            error.to_string(),
            "meter exact: load: Operation not permitted (needs CAP_BPF and CAP_PERFMON)"
        );
        let MeterError::Unavailable { source, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(source.unwrap().raw_os_error(), Some(libc::EPERM));
        let strange = libbpf_rs::Error::from_raw_os_error(libc::E2BIG);
        let error = failure(MeterName::Exact, "attach", &strange);
        assert_eq!(error.cause(), "attach: Argument list too long");
    }
}
