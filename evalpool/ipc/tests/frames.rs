//! Frames: every message reads back, no bytes make the reader panic, and the bytes of version 3
//! stay what they are.

use gradient_domain::System;
use gradient_domain::derivation::Outline;
use gradient_domain::pattern::Segment;
use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::codec::{EVAL_IPC_VERSION, HEADER_LEN, Message, payload_len, read_payload};
use gradient_ipc::message::{
    BuildDone, CacheFile, Expression, Extras, Failure, FetchInput, FetchOk, Fingerprint,
    FingerprintOk, Item, List, ListOk, NeedsBuild, Plan, PlanOk, Request, Response, Source, Start,
    Started, Stats, TextExpression,
};
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::tree::{AttrError, Extra, Job};
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
    (any_pattern(), proptest::option::of(vec(any::<String>(), 0..4)), any_recursion())
        .prop_map(|(pattern, only, recursion)| Shard { pattern, only, recursion })
}

fn any_recursion() -> impl Strategy<Value = Recursion> + Clone {
    prop_oneof![
        Just(Recursion::Pattern),
        Just(Recursion::Marked),
        Just(Recursion::Tree),
        Just(Recursion::WholeTree),
    ]
}

fn any_cache() -> impl Strategy<Value = CacheFile> + Clone {
    (any::<String>(), any::<String>())
        .prop_map(|(path, fingerprint)| CacheFile { path, fingerprint })
}

fn any_source() -> impl Strategy<Value = Source> + Clone {
    let text = || any::<String>();
    let option = proptest::option::of(text());
    let expression = prop_oneof![
        text().prop_map(Expression::Flake),
        (text(), text())
            .prop_map(|(text, folder)| Expression::Text(TextExpression { text, folder })),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let extras =
        (flags, option.clone()).prop_map(|((name, meta, constituents, outline), apply)| Extras {
            name,
            meta,
            apply,
            constituents,
            outline,
        });
    let cache = proptest::option::of(any_cache());
    (expression, vec(text(), 0..3), option, extras, cache).prop_map(
        |(expression, fragment, select, extras, cache)| Source {
            expression,
            fragment,
            select,
            extras,
            cache,
        },
    )
}

fn any_request() -> impl Strategy<Value = Request> {
    let option = proptest::option::of(any::<String>());
    prop_oneof![
        (option.clone(), any::<String>(), any::<bool>(), any::<String>()).prop_map(
            |(nix_lib_dir, store_uri, show_trace, nonce)| {
                Request::Start(Start { nix_lib_dir, store_uri, show_trace, nonce })
            }
        ),
        Just(Request::Ping),
        (any_source(), vec(any_pattern(), 0..4), any_recursion()).prop_map(
            |(source, patterns, recursion)| Request::Plan(Plan { source, patterns, recursion })
        ),
        (any_source(), any_shard(), vec(any_path(), 0..3))
            .prop_map(|(source, shard, excludes)| Request::List(List { source, shard, excludes })),
        (any::<String>(), any::<String>()).prop_map(|(reference, locks)| {
            Request::Fingerprint(Fingerprint { reference, locks })
        }),
        any_cache().prop_map(Request::Checkpoint),
        (any::<String>(), option.clone()).prop_map(|(locked, git_ssh_command)| {
            Request::FetchInput(FetchInput { locked, git_ssh_command })
        }),
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
    let option = proptest::option::of(any::<String>());
    let outline =
        (any::<String>(), any::<String>(), any::<bool>()).prop_map(|(word, name, known)| Outline {
            system: System(word.clone()),
            outputs: [(name, known.then(store_path))].into(),
            required_system_features: [word].into(),
        });
    let texts = (option.clone(), option.clone(), option.clone(), option.clone());
    let extra = (texts, proptest::option::of(outline)).prop_map(
        |((name, meta, applied, constituents), outline)| Extra {
            name,
            meta,
            applied,
            constituents,
            outline,
        },
    );
    let job = proptest::option::of(extra).prop_map(|extra| Job { drv_path: store_path(), extra });
    let result = prop_oneof![job.prop_map(Ok), any::<String>().prop_map(Err)];
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
        option.prop_map(|fingerprint| Response::FingerprintOk(FingerprintOk { fingerprint })),
        Just(Response::CheckpointOk),
        Just(Response::FetchOk(FetchOk { store_path: store_path() })),
        any::<String>().prop_map(|message| Response::Err(Failure { message })),
        Just(Response::TooLong),
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
fn the_bytes_of_version_3() {
    assert_eq!(EVAL_IPC_VERSION, 3);
    let start = Request::Start(Start {
        nix_lib_dir: None,
        store_uri: "daemon".into(),
        show_trace: true,
        nonce: "secret".into(),
    });
    let pattern = vec![Segment::Name("packages".into()), Segment::Star];
    let list = Request::List(List {
        source: Source::flake("path:/x"),
        shard: Shard { pattern, only: Some(vec!["a".into()]), recursion: Recursion::Pattern },
        excludes: vec![AttrPath(vec!["b".into()])],
    });
    let item = Item {
        attr: AttrPath(vec!["a".into()]),
        result: Ok(Job { drv_path: store_path(), extra: None }),
    };
    let listed = Response::ListOk(ListOk { items: vec![item], ..ListOk::default() });
    let frames = [
        ("start", start.to_frame()),
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
    assert_eq!(written, include_str!("golden/frames-v3.txt"));
}
