//! The envelope against whatever may arrive: headers survive, and no body makes a reader panic.

mod samples;

use std::collections::BTreeMap;

use gradient_events::command::Command;
use gradient_events::entry::EntryBatch;
use gradient_events::envelope::{CRC, DecodeError, Envelope, ID, SCHEMA, TRACEPARENT, TYPE, Wire};
use gradient_events::query::{KnownDerivations, QueryKnownDerivations};
use gradient_events::server::ServerMessage;
use gradient_events::worker::{FromWorker, Heartbeat};
use proptest::prelude::*;
use uuid::Uuid;

fn parse(headers: &BTreeMap<&'static str, String>) -> Result<Envelope, DecodeError> {
    Envelope::parse(|name| headers.get(name).map(String::as_str))
}

fn headers_of(envelope: &Envelope) -> BTreeMap<&'static str, String> {
    envelope.headers().into_iter().collect()
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let traceparent = proptest::option::of("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-0[01]");
    ("[a-z._]{1,40}", any::<u16>(), any::<u128>(), any::<u32>(), traceparent).prop_map(
        |(type_name, schema, id, crc, traceparent)| Envelope {
            type_name,
            schema,
            id: Uuid::from_u128(id),
            crc,
            traceparent,
        },
    )
}

/// Reads a body as every type that travels; the checksum is right, so that validation is reached.
fn read_as_everything(body: &[u8]) {
    fn read<T: Wire>(body: &[u8]) {
        let _ = Envelope::of::<T>(Uuid::nil(), body, None).decode::<T>(body);
    }
    read::<FromWorker>(body);
    read::<Heartbeat>(body);
    read::<ServerMessage>(body);
    read::<Command>(body);
    read::<EntryBatch>(body);
    read::<QueryKnownDerivations>(body);
    read::<KnownDerivations>(body);
}

/// The body of a sample of any type.
fn body() -> impl Strategy<Value = Vec<u8>> {
    fn bodies<T: Wire>(samples: Vec<samples::Sample<T>>) -> Vec<Vec<u8>> {
        samples.iter().map(|(_, value)| value.to_body()).collect()
    }
    let all = [
        bodies(samples::from_worker()),
        bodies(samples::heartbeats()),
        bodies(samples::server()),
        bodies(samples::commands()),
        bodies(samples::entries()),
        bodies(samples::queries()),
        bodies(samples::answers()),
    ];
    proptest::sample::select(all.concat())
}

proptest! {
    #[test]
    fn headers_survive(envelope in envelope()) {
        prop_assert_eq!(parse(&headers_of(&envelope)), Ok(envelope));
    }

    #[test]
    fn a_missing_or_malformed_header_is_named(envelope in envelope(), junk in "[^0-9]{0,12}g") {
        for header in [TYPE, SCHEMA, ID, CRC] {
            let mut headers = headers_of(&envelope);
            headers.remove(header);
            prop_assert_eq!(parse(&headers), Err(DecodeError::Header { header }));
        }
        for header in [SCHEMA, ID, CRC] {
            let mut headers = headers_of(&envelope);
            headers.insert(header, junk.clone());
            prop_assert_eq!(parse(&headers), Err(DecodeError::Header { header }));
        }
        let mut headers = headers_of(&envelope);
        headers.remove(TRACEPARENT);
        prop_assert_eq!(parse(&headers), Ok(Envelope { traceparent: None, ..envelope }));
    }

    #[test]
    fn a_wrong_checksum_stops_the_reader(body in body(), flip in 1..=u32::MAX) {
        let right = Envelope::of::<EntryBatch>(Uuid::nil(), &body, None);
        let wrong = Envelope { crc: right.crc ^ flip, ..right.clone() };
        prop_assert_eq!(
            wrong.decode::<EntryBatch>(&body),
            Err(DecodeError::Checksum { expected: wrong.crc, actual: right.crc })
        );
    }

    #[test]
    fn one_changed_bit_of_the_body_is_noticed(body in body(), at in any::<prop::sample::Index>()) {
        let envelope = Envelope::of::<EntryBatch>(Uuid::nil(), &body, None);
        let mut changed = body;
        let bit = at.index(changed.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        let read = envelope.decode::<EntryBatch>(&changed);
        prop_assert!(matches!(read, Err(DecodeError::Checksum { .. })), "{read:?}");
    }

    #[test]
    fn another_type_or_schema_is_unknown(body in body(), name in "[a-z]{1,20}", schema in 2..=u16::MAX) {
        let known = Envelope::of::<Command>(Uuid::nil(), &body, None);
        let other = Envelope { type_name: format!("x-{name}"), ..known.clone() };
        let newer = Envelope { schema, ..known.clone() };
        let zero = Envelope { schema: 0, ..known };
        for envelope in [other, newer, zero] {
            let read = envelope.decode::<Command>(&body);
            let is_unknown = matches!(&read, Err(DecodeError::Unknown { .. }));
            prop_assert!(is_unknown, "{read:?}");
        }
    }

    #[test]
    fn a_truncated_body_never_panics(body in body(), at in any::<prop::sample::Index>()) {
        let length = at.index(body.len());
        read_as_everything(&body[..length]);
        read_as_everything(&body[length..]);
    }

    #[test]
    fn a_mutated_body_never_panics(
        body in body(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16),
    ) {
        let mut changed = body;
        for (at, byte) in changes {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        read_as_everything(&changed);
    }

    #[test]
    fn noise_never_panics(body in prop::collection::vec(any::<u8>(), 0..600)) {
        read_as_everything(&body);
    }
}
