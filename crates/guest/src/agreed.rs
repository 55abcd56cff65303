//! Paths and words that the host's part and the guest's part agree on.

/// Path of the program; the kernel starts it by this name.
pub(crate) const PROGRAM: &str = "/init";
/// Directory of input files.
pub(crate) const TASK: &str = "/task";
/// File with the paths of modules, in load order, a line each.
pub(crate) const MODULES: &str = "/modules/order";
/// File with the commands of [`crate::Setup`]: a line each, words separated by tabs.
pub(crate) const SETUP: &str = "/setup";
/// File with the program's arguments, a line each.
pub(crate) const ARGUMENTS: &str = "/arguments";
/// File with the names of files whose lines are sent to the host, a line each.
pub(crate) const RESULTS: &str = "/results";
/// File with devices, addresses and prefix lengths, a line each.
pub(crate) const ADDRESSES: &str = "/addresses";

/// File with the number of additions of [`crate::Task::padding`].
pub(crate) const PADDING: &str = "/padding";

/// Word on the kernel's command line if its clock counts instructions.
pub(crate) const COUNTS: &str = "guest.counts";

/// Line of a guest that can be saved.
pub(crate) const READY: &str = "ready";
