use proptest::prelude::*;

use super::*;
use crate::protocol::MESSAGE_BYTES;

fn ends() -> Ends {
    Ends {
        local: "192.0.2.1:12865".parse().unwrap(),
        peer: "192.0.2.2:4000".parse().unwrap(),
    }
}

fn plan(request: &Request) -> Result<Plan, i32> {
    let bound = [ends().local];
    Plan::of(request, &ends(), &bound).map_err(|error| errno(&error))
}

#[test]
fn data_is_taken_where_control_came_to_and_from_whom_it_came() {
    let plan = plan(&Request::default()).unwrap();
    assert_eq!(plan.listen, "192.0.2.1:0".parse().unwrap());
    assert_eq!(plan.peer, ends().peer.ip());
}

#[test]
fn what_is_not_to_be_had_is_refused_with_its_reason() {
    let with = |change: fn(&mut Request)| {
        let mut request = Request::default();
        change(&mut request);
        plan(&request).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(|request| request.protocol = 17), libc::EPROTONOSUPPORT);
    let udp = |request: &mut Request| (request.socket_type, request.protocol) = (2, 17);
    let mut sends = Request::default();
    udp(&mut sends);
    assert!(plan(&sends).is_ok());
    sends.direction = SENDS;
    let refused = |request: &Request| plan(request).map(|_| ()).unwrap_err();
    assert_eq!(refused(&sends), libc::EOPNOTSUPP);
    sends.direction = SENDS | RECEIVES;
    assert!(plan(&sends).is_ok());
    sends.flags |= flag::CONNECT_TEST;
    assert_eq!(refused(&sends), libc::EOPNOTSUPP);
    assert_eq!(
        with(|request| request.socket_type = 2),
        libc::EPROTONOSUPPORT
    );
    assert_eq!(with(|request| request.direction = 0), libc::EOPNOTSUPP);
    assert_eq!(with(|request| request.interval_burst = 1), libc::EOPNOTSUPP);
    assert_eq!(
        with(|request| request.flags |= flag::FASTOPEN),
        libc::EOPNOTSUPP
    );
    assert_eq!(
        with(|request| request.fill_file = "/etc/shadow".into()),
        libc::EPERM
    );
    assert_eq!(with(|request| request.test_length = 0), libc::EINVAL);
    assert_eq!(with(|request| request.test_length = i32::MAX), libc::EINVAL);
    assert_eq!(with(|request| request.ipfamily = 6), libc::EAFNOSUPPORT);
    assert_eq!(with(|request| request.data_port = 22), libc::EACCES);
    assert_eq!(with(|request| request.data_port = 70_000), libc::EINVAL);
    let elsewhere = |request: &mut Request| {
        request.netserver_ip = omni::address_bytes("192.0.2.9".parse().unwrap());
    };
    assert_eq!(with(elsewhere), libc::EADDRNOTAVAIL);
}

#[test]
fn buffers_are_bounded_before_they_are_made() {
    let lengths = |request: Request| {
        plan(&request)
            .unwrap()
            .lengths(Sizes {
                send: 16_384,
                receive: 131_072,
            })
            .map_err(|error| errno(&error))
    };
    assert_eq!(lengths(Request::default()), Ok((0, 131_072)));
    let huge = Request {
        receive_size: i32::MAX,
        ..Request::default()
    };
    assert_eq!(lengths(huge), Err(libc::EMSGSIZE));
    let transactions = Request {
        direction: SENDS | RECEIVES,
        request_size: 100,
        response_size: 5,
        ..Request::default()
    };
    assert_eq!(lengths(transactions.clone()), Ok((5, 100)));
    assert_eq!(
        lengths(Request {
            request_size: -1,
            ..transactions
        }),
        Err(libc::EINVAL)
    );
}

proptest! {
    #[test]
    fn any_message_is_refused_or_bounded(
        bytes in proptest::collection::vec(any::<u8>(), MESSAGE_BYTES),
        kind in prop_oneof![Just(97), Just(10), Just(13), Just(34), Just(94)],
        is_nearly_right in any::<bool>(),
    ) {
        let mut message = Message::from_bytes(&bytes.try_into().unwrap());
        message.kind = kind;
        let request = classic::request_of(&message).unwrap_or_else(|| Request::of(&message));
        let request = match is_nearly_right {
            false => request,
            true => Request {
                socket_type: omni::STREAM_SOCKET,
                protocol: omni::TCP,
                ipfamily: 4,
                netserver_ip: [0; 16],
                fill_file: String::new(),
                interval_burst: 0,
                interval_usecs: 0,
                ..request
            },
        };
        if let Ok(plan) = plan(&request) {
            prop_assert_eq!(plan.listen.ip(), ends().local.ip());
            prop_assert!(plan.time.is_none_or(|time| time.as_secs() <= 86_400));
            if let Ok((send, receive)) = plan.lengths(Sizes { send: 16_384, receive: 131_072 }) {
                prop_assert!(send <= BUFFER && receive <= BUFFER);
            }
        }
    }
}
