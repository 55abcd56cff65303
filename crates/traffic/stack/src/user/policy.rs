//! Knobs of our own TCP as settings of its connections and of its stack.

use std::num::NonZeroU16;
use std::time::Duration;

use tcpcost_knobs::{AckKind, TailSplit, UserKnob, Value, WindowGrowth, with_ack_policies};
use tcpcost_tcp::{
    AckPolicy, Config, MtuProbing, Pacing, Segmentation, SegmentationRules, TailRule, WindowRestart,
};

/// Settings of our own TCP that a study chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct UserSettings {
    /// Configuration of the connections.
    pub config: Config,
    /// Argument for [`UserStack::with_busy_poll`](crate::UserStack::with_busy_poll).
    pub busy_poll: Duration,
    /// Argument for [`UserStack::with_batch`](crate::UserStack::with_batch); `None`: the stack's
    /// default.
    pub batch: Option<usize>,
}

impl UserSettings {
    /// Applies choices to `config`, in the order of their rows; other settings stay.
    pub fn new(
        config: &Config,
        choices: impl IntoIterator<Item = (UserKnob, Value)>,
    ) -> UserSettings {
        let mut settings = UserSettings {
            config: config.clone(),
            busy_poll: Duration::ZERO,
            batch: None,
        };
        let mut acks = Acks::default();
        for (which, value) in choices {
            settings.choose(&mut acks, which, &value);
        }
        if let Some(policy) = acks.policy() {
            settings.config.ack = policy;
        }
        settings
    }

    /// Current value of a knob. `None` if there is none, e.g. a limit of a policy that has no
    /// limit.
    pub fn read(&self, which: UserKnob) -> Option<Value> {
        let (config, segmentation) = (&self.config, &self.config.segmentation);
        let acks = Acks::of(&config.ack);
        let count = |n: u32| Value::Count(n.into());
        let us = |time: Duration| u64::try_from(time.as_micros()).ok().map(Value::Count);
        let word = |word: &str| Some(Value::Word(word.to_string()));
        match which {
            UserKnob::Mtu => Some(Value::Bytes(u64::from(config.mss) + HEADERS)),
            UserKnob::AckPolicy => word(acks.kind?.word()),
            // For a policy that has only a limit, that is its number of segments.
            UserKnob::AckSegments => acks.segments.or(acks.limit_max).map(count),
            UserKnob::AckDelay => acks.delay_max.map(Value::Time),
            UserKnob::AckLimitInitial => acks.limit_initial.map(count),
            UserKnob::AckLimitMax => acks.limit_max.map(count),
            UserKnob::CompSackNr => Some(count(config.linux_acks.comp_sack_nr.into())),
            UserKnob::CompSackDelay => us(config.linux_acks.comp_sack_delay),
            UserKnob::BacklogAckDefer => Some(Value::Switch(config.linux_acks.backlog_ack_defer)),
            UserKnob::SegmentationRules => word(match segmentation.rules {
                SegmentationRules::Plain => "plain",
                SegmentationRules::Linux => "linux",
            }),
            UserKnob::TailSplit => word(match segmentation.tail {
                TailRule::Split => TailSplit::Split.word(),
                TailRule::Keep => TailSplit::Keep.word(),
            }),
            UserKnob::TsoWinDivisor => segmentation.window_divisor.map(count),
            UserKnob::SuperSegment => {
                Some(Value::Bytes(segmentation.super_segment_bytes_max.into()))
            }
            UserKnob::TsoMinSegs => Some(count(segmentation.paced_segments_min)),
            UserKnob::WholeSuperSegments => Some(Value::Switch(segmentation.whole_only)),
            UserKnob::Pacing => word(match segmentation.pacing {
                Pacing::Off => "off",
                Pacing::Window | Pacing::BytesPerSecond(_) => "timer",
            }),
            UserKnob::PacingRate => match segmentation.pacing {
                Pacing::BytesPerSecond(rate) => Some(Value::BitsPerS(8 * rate)),
                Pacing::Off | Pacing::Window => None,
            },
            UserKnob::InitialWindow => config.initial_window.map(|n| count(n.get().into())),
            UserKnob::WindowGrowth => word(match config.window_growth {
                tcpcost_tcp::WindowGrowth::Bytes => WindowGrowth::Bytes.word(),
                tcpcost_tcp::WindowGrowth::PerAck => WindowGrowth::PerAck.word(),
            }),
            UserKnob::WindowRestart => word(match config.window_restart {
                WindowRestart::Off => "off",
                WindowRestart::Idle => "idle",
                WindowRestart::EachSend => "each-send",
            }),
            UserKnob::TailLossProbe => Some(Value::Switch(config.tail_loss_probe)),
            UserKnob::MtuProbing => word(match config.mtu_probing {
                MtuProbing::Off => "off",
                MtuProbing::BlackHole => "black-hole",
                MtuProbing::Always => "always",
            }),
            UserKnob::HyStart => Some(Value::Switch(config.hystart)),
            UserKnob::Dscp => Some(count(config.dscp.into())),
            UserKnob::BusyPoll => us(self.busy_poll),
            UserKnob::ReceiveBatch => u64::try_from(self.batch?).ok().map(Value::Count),
        }
    }

    fn choose(&mut self, acks: &mut Acks, which: UserKnob, value: &Value) {
        let config = &mut self.config;
        let whole = || value.whole().expect(KIND);
        let number = || u32::try_from(whole()).expect("the rows' ranges fit 32 bits");
        let is_on = || value.is_on().expect(KIND);
        let word = || value.word().expect(KIND);
        match which {
            UserKnob::Mtu => {
                config.mss = u16::try_from(whole().saturating_sub(HEADERS)).unwrap_or(u16::MAX);
            }
            UserKnob::AckPolicy => acks.kind = AckKind::from_word(word()),
            UserKnob::AckSegments => acks.segments = Some(number()),
            UserKnob::AckDelay => acks.delay_max = value.time(),
            UserKnob::AckLimitInitial => acks.limit_initial = Some(number()),
            UserKnob::AckLimitMax => acks.limit_max = Some(number()),
            UserKnob::CompSackNr => {
                config.linux_acks.comp_sack_nr = u8::try_from(whole()).unwrap_or(u8::MAX);
            }
            UserKnob::CompSackDelay => {
                config.linux_acks.comp_sack_delay = Duration::from_micros(whole());
            }
            UserKnob::BacklogAckDefer => config.linux_acks.backlog_ack_defer = is_on(),
            // Comes before the rows that change a part of it.
            UserKnob::SegmentationRules => {
                let rules = match word() {
                    "linux" => Segmentation::linux(),
                    _ => Segmentation::default(),
                };
                config.segmentation.rules = rules.rules;
                config.segmentation.window_divisor = rules.window_divisor;
            }
            UserKnob::TailSplit => {
                config.segmentation.tail = match TailSplit::from_word(word()).expect(KIND) {
                    TailSplit::Split => TailRule::Split,
                    TailSplit::Keep => TailRule::Keep,
                }
            }
            UserKnob::TsoWinDivisor => config.segmentation.window_divisor = Some(number()),
            UserKnob::SuperSegment => config.segmentation.super_segment_bytes_max = number(),
            UserKnob::TsoMinSegs => config.segmentation.paced_segments_min = number(),
            UserKnob::WholeSuperSegments => config.segmentation.whole_only = is_on(),
            UserKnob::Pacing => {
                config.segmentation.pacing = match word() {
                    "timer" => Pacing::Window,
                    _ => Pacing::Off,
                }
            }
            // A rate alone does not pace: its row needs `pacing`, which comes before it.
            UserKnob::PacingRate if config.segmentation.pacing == Pacing::Off => {}
            UserKnob::PacingRate => {
                config.segmentation.pacing = Pacing::BytesPerSecond(whole() / 8);
            }
            UserKnob::InitialWindow => {
                config.initial_window = u16::try_from(whole()).ok().and_then(NonZeroU16::new);
            }
            UserKnob::WindowGrowth => {
                config.window_growth = match WindowGrowth::from_word(word()).expect(KIND) {
                    WindowGrowth::Bytes => tcpcost_tcp::WindowGrowth::Bytes,
                    WindowGrowth::PerAck => tcpcost_tcp::WindowGrowth::PerAck,
                }
            }
            UserKnob::WindowRestart => {
                config.window_restart = match word() {
                    "off" => WindowRestart::Off,
                    "each-send" => WindowRestart::EachSend,
                    _ => WindowRestart::Idle,
                }
            }
            UserKnob::TailLossProbe => config.tail_loss_probe = is_on(),
            UserKnob::MtuProbing => {
                config.mtu_probing = match word() {
                    "black-hole" => MtuProbing::BlackHole,
                    "always" => MtuProbing::Always,
                    _ => MtuProbing::Off,
                }
            }
            UserKnob::HyStart => config.hystart = is_on(),
            UserKnob::Dscp => config.dscp = u8::try_from(whole()).unwrap_or(0),
            UserKnob::BusyPoll => self.busy_poll = Duration::from_micros(whole()),
            UserKnob::ReceiveBatch => self.batch = usize::try_from(whole()).ok(),
        }
    }
}

const KIND: &str = "a knob has a value of its row's kind";
/// Bytes of the IPv4 and TCP headers.
const HEADERS: u64 = 40;

/// Choices about acknowledgements; other parameters are those of the policy's row.
#[derive(Default)]
struct Acks {
    kind: Option<AckKind>,
    segments: Option<u32>,
    delay_max: Option<Duration>,
    limit_initial: Option<u32>,
    limit_max: Option<u32>,
}

/// Both conversions between a policy and its name with parameters.
macro_rules! ways {
    ($($kind:ident { $($parameter:ident),+ })+) => {
        impl Parameters {
            fn policy(self, kind: AckKind) -> AckPolicy {
                match kind {
                    $(AckKind::$kind => AckPolicy::$kind { $($parameter: self.$parameter),+ },)+
                }
            }
        }

        impl Acks {
            /// Name and parameters of a policy.
            fn of(policy: &AckPolicy) -> Acks {
                match *policy {
                    $(AckPolicy::$kind { $($parameter),+ } => Acks {
                        kind: Some(AckKind::$kind),
                        $($parameter: Some($parameter),)+
                        ..Acks::default()
                    },)+
                    // A policy of the application has no name.
                    AckPolicy::Own(_) => Acks::default(),
                }
            }
        }
    };
}

with_ack_policies!(ways);

/// All parameters that policies have.
struct Parameters {
    segments: u32,
    delay_max: Duration,
    limit_initial: u32,
    limit_max: u32,
}

impl Acks {
    /// Chosen policy; `None` if none is chosen. With only a delay it is the standard policy with
    /// that delay.
    fn policy(&self) -> Option<AckPolicy> {
        let kind = self.kind.or(self.delay_max.map(|_| AckKind::Delayed))?;
        let row = kind.row();
        let [limit_initial, limit_max] = row.limits.unwrap_or_default();
        let parameters = Parameters {
            segments: self.segments.or(row.segments).unwrap_or_default(),
            delay_max: self.delay_max.unwrap_or(row.delay_max),
            limit_initial: self.limit_initial.unwrap_or(limit_initial),
            limit_max: self.limit_max.or(self.segments).unwrap_or(limit_max),
        };
        Some(parameters.policy(kind))
    }
}

#[cfg(test)]
mod tests {
    use tcpcost_knobs::{AppliesTo, HostName, KNOBS, Knob, Knobs, UserSupport, ValueKind};
    use tcpcost_tcp::LinuxAcks;

    use super::*;

    fn with(pairs: &[(&str, &str)]) -> UserSettings {
        let mut knobs = Knobs::default();
        for (name, text) in pairs {
            knobs.set(name, text).unwrap();
        }
        UserSettings::new(&Config::default(), knobs.user_choices(HostName::CLIENT))
    }

    #[test]
    fn nothing_set_changes_nothing() {
        let settings = with(&[("ack_policy", "default"), ("mtu", "leave")]);
        assert_eq!(settings.config, Config::default());
        assert_eq!((settings.busy_poll, settings.batch), (Duration::ZERO, None));
    }

    #[test]
    fn each_policy_brings_its_own_parameters() {
        let ms = Duration::from_millis;
        let avoidance = AckPolicy::Avoidance {
            limit_initial: 1,
            limit_max: 22,
            delay_max: ms(50),
        };
        assert_eq!(with(&[("ack_policy", "avoidance")]).config.ack, avoidance);
        let linux = [("ack_policy", "linux-like"), ("ack_delay", "10ms")];
        assert_eq!(
            with(&linux).config.ack,
            AckPolicy::LinuxLike { delay_max: ms(10) }
        );
        let delayed = AckPolicy::Delayed { delay_max: ms(10) };
        assert_eq!(with(&[("ack_delay", "10ms")]).config.ack, delayed);
    }

    #[test]
    fn the_sysctls_of_linux_are_ours_too() {
        let settings = with(&[
            ("comp_sack_nr", "0"),
            ("comp_sack_delay_us", "250"),
            ("backlog_ack_defer", "off"),
        ]);
        let expected = LinuxAcks {
            comp_sack_nr: 0,
            comp_sack_delay: Duration::from_micros(250),
            backlog_ack_defer: false,
            ..LinuxAcks::default()
        };
        assert_eq!(settings.config.linux_acks, expected);
    }

    /// Values of a knob: every word, or both ends of its range.
    fn values(row: &Knob) -> Vec<String> {
        match row.kind {
            ValueKind::Choice(words) => words.iter().map(ToString::to_string).collect(),
            ValueKind::Switch => vec!["on".into(), "off".into()],
            ValueKind::Count(least, most) => vec![least.to_string(), most.to_string()],
            ValueKind::Bytes(least, most) => vec![format!("{least}B"), format!("{most}B")],
            ValueKind::Time(least, most) => vec![format!("{least}ms"), format!("{most}ms")],
            ValueKind::BitRate => vec!["8Mbit".into()],
            ValueKind::EventRate
            | ValueKind::Share
            | ValueKind::Cpus
            | ValueKind::Text
            | ValueKind::Program
            | ValueKind::Reach
            | ValueKind::Device
            | ValueKind::Address
            | ValueKind::Ports => panic!("{}: add values", row.name),
        }
    }

    #[test]
    fn every_value_of_every_knob_of_ours_is_read_back() {
        for row in KNOBS {
            let (AppliesTo::Link(_, UserSupport::Supported(which))
            | AppliesTo::Tcp(_, UserSupport::Supported(which))) = row.applies_to
            else {
                continue;
            };
            for value in values(row) {
                let mut knobs = Knobs::default();
                knobs.set(row.name, &value).unwrap();
                // Sets what the row needs: the first word that suffices.
                while let Some(unmet) = knobs.unmet().into_iter().next() {
                    let needed = unmet.reason.strip_prefix("needs ").unwrap();
                    let (name, rest) = needed.split_once(" = \"").unwrap();
                    knobs.set(name, rest.split_once('"').unwrap().0).unwrap();
                }
                let settings =
                    UserSettings::new(&Config::default(), knobs.user_choices(HostName::CLIENT));
                assert_eq!(
                    settings.read(which),
                    knobs.value(row.name),
                    "{} = {value}",
                    row.name
                );
            }
        }
    }

    #[test]
    fn the_rules_of_linux_bring_its_divisor_unless_one_is_chosen() {
        let linux = ("segmentation_rules", "linux");
        assert_eq!(with(&[linux]).config.segmentation, Segmentation::linux());
        let other = with(&[("tso_win_divisor", "8"), linux]).config.segmentation;
        assert_eq!(other.rules, SegmentationRules::Linux);
        assert_eq!(other.window_divisor, Some(8));
    }

    #[test]
    fn a_rate_alone_does_not_pace() {
        let rate = ("pacing_rate", "8Mbit");
        let pacing = |pairs: &[_]| with(pairs).config.segmentation.pacing;
        assert_eq!(pacing(&[rate]), Pacing::Off);
        let paced = pacing(&[rate, ("pacing", "timer")]);
        assert_eq!(paced, Pacing::BytesPerSecond(1_000_000));
    }

    #[test]
    fn the_mtu_makes_the_mss_and_the_stack_has_choices_too() {
        let settings = with(&[
            ("mtu", "9000"),
            ("busy_poll_us", "50"),
            ("receive_batch", "1"),
        ]);
        assert_eq!(settings.config.mss, 8960);
        assert_eq!(settings.busy_poll, Duration::from_micros(50));
        assert_eq!(settings.batch, Some(1));
    }
}
