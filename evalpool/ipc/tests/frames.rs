//! Frames: every message reads back, no bytes make the reader panic, and the bytes of version 1
//! stay what they are.

use gradient_domain::pattern::Segment;
use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::codec::{EVAL_IPC_VERSION, HEADER_LEN, Message, payload_len, read_payload};
use gradient_ipc::message::{
    BuildDone, Failure, Item, List, ListOk, NeedsBuild, Plan, PlanOk, Request, Response, Start,
    Started, Stats,
};
use gradient_ipc::shard::Shard;
use gradient_ipc::tree::AttrError;
use proptest::collection::vec;
use proptest::prelude::*;

fn any_path() -> impl Strategy<Value = AttrPath> + Clone {
    vec(any::<String>(), 0..4).prop_map(AttrPath)
}

fn any_pattern() -> impl Strategy<Value = Vec<Segment>> + Clone {
    let segment = prop_oneof![
        any::<String>().prop_map(Segment::Name),
        Just(Segment::Star),
        Just(Segment::Hash),
    ];
    vec(segment, 0..5)
}

fn any_shard() -> impl Strategy<Value = Shard> + Clone {
    (any_pattern(), proptest::option::of(vec(any::<String>(), 0..4)))
        .prop_map(|(pattern, only)| Shard { pattern, only })
}

fn any_request() -> impl Strategy<Value = Request> {
    let option = proptest::option::of(any::<String>());
    prop_oneof![
        (option.clone(), any::<String>()).prop_map(|(nix_lib_dir, store_uri)| {
            Request::Start(Start { nix_lib_dir, store_uri })
        }),
        Just(Request::Ping),
        (any::<String>(), vec(any_pattern(), 0..4))
            .prop_map(|(flake, patterns)| Request::Plan(Plan { flake, patterns })),
        (any::<String>(), any_shard(), vec(any_path(), 0..3))
            .prop_map(|(flake, shard, excludes)| Request::List(List { flake, shard, excludes })),
        option.prop_map(|error| Request::BuildDone(BuildDone { error })),
        Just(Request::Shutdown),
    ]
}

fn store_path() -> StorePath {
    let base_name = format!("{}-hello-2.12.drv", "0".repeat(32));
    StorePath::from_base_name(&base_name).expect("valid")
}

fn any_response() -> impl Strategy<Value = Response> {
    let error =
        (any_path(), any::<String>()).prop_map(|(attr, message)| AttrError { attr, message });
    let result = prop_oneof![Just(Ok(store_path())), any::<String>().prop_map(Err)];
    let item = (any_path(), result).prop_map(|(attr, result)| Item { attr, result });
    let texts = vec(any::<String>(), 0..3);
    let listed = (vec(item, 0..4), vec(any_shard(), 0..3), texts.clone(), vec(error.clone(), 0..3));
    prop_oneof![
        any::<String>().prop_map(|nix_version| Response::Started(Started { nix_version })),
        Just(Response::Pong),
        (vec(any_shard(), 0..4), vec(error, 0..3))
            .prop_map(|(shards, errors)| Response::PlanOk(PlanOk { shards, errors })),
        listed.prop_map(|(items, deferred, warnings, errors)| {
            Response::ListOk(ListOk { items, deferred, warnings, errors })
        }),
        (any::<u64>(), any::<Option<u64>>()).prop_map(|(wall_us, alloc_bytes)| {
            Response::Stats(Stats { wall_us, alloc_bytes, ..Stats::default() })
        }),
        texts.prop_map(|derived_paths| Response::NeedsBuild(NeedsBuild { derived_paths })),
        any::<String>().prop_map(|message| Response::Err(Failure { message })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_read_back(requests in vec(any_request(), 0..4)) {
        let mut stream = Vec::new();
        for request in &requests {
            stream.extend(request.to_frame().expect("short"));
        }
        let mut reader = stream.as_slice();
        let mut read = Vec::new();
        while let Some(payload) = read_payload(&mut reader).expect("whole frames") {
            read.push(Request::from_payload(&payload).expect("valid"));
        }
        prop_assert_eq!(read, requests);
    }

    #[test]
    fn responses_read_back(response in any_response()) {
        let frame = response.to_frame().expect("short");
        let payload = read_payload(&mut frame.as_slice()).expect("whole").expect("one");
        prop_assert_eq!(Response::from_payload(&payload).expect("valid"), response);
    }

    #[test]
    fn a_damaged_frame_is_refused_or_read_but_never_a_panic(
        response in any_response(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut frame = response.to_frame().expect("short");
        let at = at.index(frame.len());
        frame[at] ^= 1_u8 << bit;
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&frame[..HEADER_LEN]);
        if payload_len(header).is_ok()
            && let Ok(Some(payload)) = read_payload(&mut frame.as_slice())
        {
            let _ = Response::from_payload(&payload);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whoever changes these bytes raises [`EVAL_IPC_VERSION`] and writes them anew.
#[test]
fn the_bytes_of_version_1() {
    assert_eq!(EVAL_IPC_VERSION, 1);
    let pattern = vec![Segment::Name("packages".into()), Segment::Star];
    let list = Request::List(List {
        flake: "path:/x".into(),
        shard: Shard { pattern, only: Some(vec!["a".into()]) },
        excludes: vec![AttrPath(vec!["b".into()])],
    });
    let item = Item { attr: AttrPath(vec!["a".into()]), result: Ok(store_path()) };
    let listed = Response::ListOk(ListOk { items: vec![item], ..ListOk::default() });
    let frames = [
        ("ping", Request::Ping.to_frame()),
        ("list", list.to_frame()),
        ("pong", Response::Pong.to_frame()),
        ("list_ok", listed.to_frame()),
        (
            "stats",
            Response::Stats(Stats { wall_us: 7, heap_bytes: Some(9), ..Stats::default() })
                .to_frame(),
        ),
    ];
    let written: String = frames
        .into_iter()
        .map(|(name, frame)| format!("{name} {}\n", hex(&frame.expect("short"))))
        .collect();
    assert_eq!(written, include_str!("golden/frames-v1.txt"));
}
