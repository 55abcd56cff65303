//! Scopes of figures: sets of hosts, their order and their names.

use std::collections::BTreeSet;

use tcpcost_study::{HostName, Scope};

/// Scopes of these hosts: all together, the sets of hosts, each host.
pub(crate) fn scopes(hosts: &BTreeSet<HostName>) -> Vec<Scope> {
    let sets: BTreeSet<HostName> = hosts.iter().filter_map(|host| host.set()).collect();
    let named = sets.iter().chain(hosts).map(|&name| Scope::Host(name));
    std::iter::once(Scope::All).chain(named).collect()
}

/// Name of a scope, such as `client` or `all hosts together`.
pub(crate) fn whose(scope: Scope) -> String {
    scope
        .name()
        .map_or_else(|| "all hosts together".to_string(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hosts_come_before_sets_and_sets_before_hosts() {
        let of = |names: &[&str]| {
            let hosts = names.iter().map(|name| name.parse().unwrap()).collect();
            let scopes = scopes(&hosts).into_iter();
            let names = scopes.map(whose);
            names.collect::<Vec<String>>()
        };
        assert_eq!(
            of(&["server", "client"]),
            ["all hosts together", "client", "server"]
        );
        let star = of(&["server", "client2", "client10"]);
        assert_eq!(
            star,
            [
                "all hosts together",
                "clients",
                "client2",
                "client10",
                "server"
            ]
        );
    }
}
