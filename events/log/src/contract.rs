//! What every log and inbox must do. Tests call [`log`] and [`inbox`] with an empty one.

use futures_util::StreamExt;
use gradient_domain::Timestamp;
use gradient_events::{Cause, Command, Entry, EntryBatch, Envelope, Input, Wire};
use uuid::Uuid;

use crate::{AppendError, EventLog, Inbox, SendError};

fn batch(at: u64) -> EntryBatch {
    let entry =
        Entry { at: Timestamp(at), cause: Cause::Internal, input: Input::Tick, events: Vec::new() };
    EntryBatch { entries: vec![entry] }
}

/// The contract of a log, on an empty one.
///
/// # Panics
/// At the first clause that does not hold.
pub async fn log<L: EventLog>(log: L) {
    assert_eq!(log.last_sequence().await.expect("readable"), 0, "an empty log has no last message");
    let first = Uuid::from_u128(1);
    let one = log.append(0, first, &batch(1)).await.expect("an append to an empty log");
    assert_eq!(one, 1, "sequences start at 1");

    let stale = log.append(0, Uuid::from_u128(2), &batch(2)).await;
    assert!(
        matches!(stale, Err(AppendError::Conflict { expected: 0 })),
        "a stale append loses: {stale:?}"
    );
    assert_eq!(log.last_sequence().await.expect("readable"), 1, "a lost append leaves no trace");

    let again = log.append(0, first, &batch(1)).await.expect("a retry of the newest message");
    assert_eq!(again, one, "a retry of the newest message finds it appended");

    let racers = (0..8u128).map(|n| {
        let log = log.clone();
        async move { log.append(1, Uuid::from_u128(100 + n), &batch(100 + n as u64)).await }
    });
    let results = futures_util::future::join_all(racers).await;
    let winners: Vec<_> = results.iter().filter(|r| r.is_ok()).collect();
    assert_eq!(winners.len(), 1, "of many appends at one position exactly one wins: {results:?}");

    let mut reader = log.read(1).await.expect("readable");
    let read = reader.next().await.expect("never ends").expect("readable");
    assert_eq!((read.sequence, read.batch), (1, batch(1)), "what was appended is read");
    reader.next().await.expect("never ends").expect("readable");
    let (later, appended) =
        futures_util::future::join(reader.next(), log.append(2, Uuid::from_u128(3), &batch(3)))
            .await;
    assert_eq!(appended.expect("appended"), 3);
    let later = later.expect("never ends").expect("readable");
    assert_eq!((later.sequence, later.batch), (3, batch(3)), "a reader at the end sees what comes");

    let mut tail = log.read(3).await.expect("readable");
    let read = tail.next().await.expect("never ends").expect("readable");
    assert_eq!(read.sequence, 3, "reading starts where it is told to");

    let identity = log.identity().await.expect("readable");
    assert_eq!(identity, log.identity().await.expect("readable"), "a log keeps its identity");

    let huge = Command::Submit {
        evaluation: gradient_domain::EvaluationId([1; 16]),
        flake: gradient_events::FlakeSource::Reference {
            url: "x".repeat(gradient_events::MESSAGE_BYTES_MAX),
        },
        patterns: vec!["*".into()],
        fetch: Default::default(),
    };
    let entry = Entry {
        at: Timestamp(4),
        cause: Cause::Internal,
        input: Input::Command { command: huge },
        events: Vec::new(),
    };
    let refused = log.append(3, Uuid::from_u128(4), &EntryBatch { entries: vec![entry] }).await;
    assert!(
        matches!(refused, Err(AppendError::TooLarge { .. })),
        "an oversize message is refused: {refused:?}"
    );
    assert_eq!(log.last_sequence().await.expect("readable"), 3, "and leaves no trace");
}

/// The contract of an inbox, on an empty one. `subject` is one that it takes.
///
/// # Panics
/// At the first clause that does not hold.
pub async fn inbox<I: Inbox>(inbox: I, subject: &str) {
    let command =
        |n: u8| Command::CancelEvaluation { evaluation: gradient_domain::EvaluationId([n; 16]) };
    let send = |n: u8, id: u128| {
        let body = command(n).to_body();
        let envelope = Envelope::of::<Command>(Uuid::from_u128(id), &body, None);
        inbox.send(subject.to_owned(), envelope, body)
    };
    send(1, 1).await.expect("sent");
    send(1, 1).await.expect("a repeat is no error");
    send(2, 2).await.expect("sent");

    let mut reader = inbox.receive(1).await.expect("readable");
    for n in [1, 2] {
        let received = reader.next().await.expect("never ends").expect("readable");
        assert_eq!(received.sequence, u64::from(n), "a repeated id is taken once");
        assert_eq!(received.subject, subject);
        let envelope = received.envelope.expect("headers survive");
        assert_eq!(envelope.decode::<Command>(&received.body), Ok(command(n)));
    }
    let mut tail = inbox.receive(2).await.expect("readable");
    let received = tail.next().await.expect("never ends").expect("readable");
    assert_eq!(received.sequence, 2, "receiving starts where it is told to");
    let (later, sent) = futures_util::future::join(tail.next(), send(3, 3)).await;
    sent.expect("sent");
    assert_eq!(later.expect("never ends").expect("readable").sequence, 3);

    let body = vec![0; gradient_events::MESSAGE_BYTES_MAX];
    let envelope = Envelope::of::<Command>(Uuid::from_u128(9), &body, None);
    let refused = inbox.send(subject.to_owned(), envelope, body).await;
    assert!(matches!(refused, Err(SendError::TooLarge { .. })), "an oversize message is refused");
}
