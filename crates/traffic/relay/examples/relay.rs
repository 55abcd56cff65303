//! A relay in about twenty lines: `relay LISTEN TO MODE` runs until it is killed.

use tcpcost_relay::{Config, Relay, bind, connections_allowed};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, listen, to, mode] = &args[..] else {
        return Err("relay LISTEN TO MODE".into());
    };
    let mut config = Config::new(to.parse()?);
    config.mode = mode.parse()?;
    config.connections_max = connections_allowed(&config, 1);
    let listeners = bind(&[listen.parse()?], 1, &config).map_err(|(_, error)| error)?;
    let totals = Relay::start(listeners, config)?.wait()?;
    println!("{totals:?}");
    Ok(())
}
