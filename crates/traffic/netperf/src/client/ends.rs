//! Addresses of the data connection.

use std::net::SocketAddr;

use crate::Failure;
use crate::options::Options;
use crate::remote::{Control, local_address, resolve};

pub(super) struct DataEnds {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) source: String,
    pub(super) destination: String,
    /// True if the request must contain netserver's address.
    pub(super) is_explicit: bool,
}

impl DataEnds {
    pub(super) fn of(options: &Options, control: &Control) -> Result<DataEnds, Failure> {
        let peer = control.peer()?;
        let remote = match &options.data_host {
            Some(host) => {
                let like = options.data_family.or(options.family);
                resolve(host, options.data_port.remote, like)?[0]
            }
            None if options.data_family.is_some() => {
                let name = &control.name;
                resolve(name, options.data_port.remote, options.data_family)?[0]
            }
            None => {
                let mut remote = peer;
                remote.set_port(options.data_port.remote);
                remote
            }
        };
        let host = options
            .data_local_host
            .as_ref()
            .or(options.local_host.as_ref());
        let local = local_address(
            host.map(String::as_str),
            options.data_port.local,
            remote.ip(),
        )?;
        Ok(DataEnds {
            local,
            remote,
            source: host.cloned().unwrap_or_else(|| local.ip().to_string()),
            destination: options
                .data_host
                .clone()
                .unwrap_or_else(|| control.name.clone()),
            is_explicit: options.data_host.is_some(),
        })
    }
}
