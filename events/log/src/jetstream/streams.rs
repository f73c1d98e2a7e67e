//! The four streams: their settings, and the refusal to work on others (protocol page, Streams).

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, Republish, RetentionPolicy, StorageType,
};
use gradient_events::{MESSAGE_BYTES_MAX, subject};

/// Consumers per stream; a positive number, because 2.15 takes -1 for 1,000.
const CONSUMERS_MAX: i32 = 256;
/// Deliveries that are kept for one worker.
const DELIVERIES_PER_WORKER_MAX: i64 = 256;

/// What differs from installation to installation.
#[derive(Clone, Debug)]
pub struct StreamLimits {
    /// Copies of each stream: 1 or 3.
    pub replicas: usize,
    /// Most bytes of the log; a full log fails loudly.
    pub events_bytes_max: i64,
    /// Most bytes of the inbox.
    pub commands_bytes_max: i64,
    /// Most bytes of the deliveries.
    pub deliveries_bytes_max: i64,
    /// Silence after which a heartbeat is forgotten.
    pub heartbeat_ttl: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            replicas: 1,
            events_bytes_max: 64 << 30,
            commands_bytes_max: 8 << 30,
            deliveries_bytes_max: 4 << 30,
            heartbeat_ttl: Duration::from_secs(120),
        }
    }
}

/// Why the streams cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A stream exists with another setting than ours.
    #[error(
        "stream {stream} has {setting} = {found}, expected is {expected}; it belongs to another installation or version, so it is left alone: use another NATS server or account"
    )]
    Mismatch {
        /// Which stream.
        stream: String,
        /// Which setting.
        setting: &'static str,
        /// What it has.
        found: String,
        /// What we need.
        expected: String,
    },
    /// The server refused to create or show a stream.
    #[error("stream {stream} cannot be created or read")]
    Refused {
        /// Which stream.
        stream: String,
        /// What the server said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

pub(super) async fn ensure(context: &Context, limits: &StreamLimits) -> Result<(), StreamError> {
    for config in configs(limits) {
        let stream = config.name.clone();
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| StreamError::Refused {
            stream: stream.clone(),
            source,
        };
        match context.get_stream(&stream).await {
            Ok(existing) => check(&config, &existing.cached_info().config)?,
            Err(error) if is_absent(&error) => {
                let made =
                    context.create_stream(config.clone()).await.map_err(|e| refused(e.into()))?;
                check(&config, &made.cached_info().config)?;
            }
            Err(error) => return Err(refused(error.into())),
        }
    }
    Ok(())
}

fn is_absent(error: &async_nats::jetstream::context::GetStreamError) -> bool {
    match error.kind() {
        GetStreamErrorKind::JetStream(error) => {
            error.error_code() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND
        }
        _ => false,
    }
}

fn configs(limits: &StreamLimits) -> [Config; 4] {
    let base = |name: &str, subjects: &str| Config {
        name: name.to_owned(),
        subjects: vec![subjects.to_owned()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        num_replicas: limits.replicas,
        max_consumers: CONSUMERS_MAX,
        max_message_size: i32::try_from(MESSAGE_BYTES_MAX).unwrap_or(i32::MAX),
        duplicate_window: Duration::from_secs(120),
        ..Config::default()
    };
    [
        Config {
            max_bytes: limits.commands_bytes_max,
            max_age: Duration::from_secs(7 * 24 * 3600),
            ..base(subject::COMMANDS, subject::COMMAND_ALL)
        },
        Config {
            storage: StorageType::Memory,
            discard: DiscardPolicy::Old,
            num_replicas: 1,
            max_messages_per_subject: 1,
            max_age: limits.heartbeat_ttl,
            duplicate_window: limits.heartbeat_ttl.min(Duration::from_secs(120)),
            ..base(subject::HEARTBEATS, subject::HEARTBEAT_ALL)
        },
        Config {
            max_bytes: limits.events_bytes_max,
            deny_delete: true,
            compression: Some(Compression::S2),
            ..base(subject::EVENTS, subject::EVENT)
        },
        Config {
            discard: DiscardPolicy::Old,
            max_bytes: limits.deliveries_bytes_max,
            max_messages_per_subject: DELIVERIES_PER_WORKER_MAX,
            max_age: Duration::from_secs(24 * 3600),
            republish: Some(Republish {
                source: "gradient.in.>".to_owned(),
                destination: "gradient.live.>".to_owned(),
                headers_only: false,
            }),
            ..base(subject::DELIVERIES, subject::DELIVERY_ALL)
        },
    ]
}

/// Compares the settings that matter; sizes may have been raised by an operator.
fn check(want: &Config, have: &Config) -> Result<(), StreamError> {
    let republish = |config: &Config| {
        config
            .republish
            .as_ref()
            .map(|r| format!("{} -> {}", r.source, r.destination))
            .unwrap_or_default()
    };
    let settings: [(&'static str, String, String); 9] = [
        ("subjects", have.subjects.join(","), want.subjects.join(",")),
        ("storage", format!("{:?}", have.storage), format!("{:?}", want.storage)),
        ("retention", format!("{:?}", have.retention), format!("{:?}", want.retention)),
        ("discard", format!("{:?}", have.discard), format!("{:?}", want.discard)),
        ("max_age", format!("{:?}", have.max_age), format!("{:?}", want.max_age)),
        ("deny_delete", have.deny_delete.to_string(), want.deny_delete.to_string()),
        (
            "max_msgs_per_subject",
            have.max_messages_per_subject.max(0).to_string(),
            want.max_messages_per_subject.to_string(),
        ),
        ("replicas", have.num_replicas.to_string(), want.num_replicas.to_string()),
        ("republish", republish(have), republish(want)),
    ];
    match settings.into_iter().find(|(_, have, want)| have != want) {
        None => Ok(()),
        Some((setting, found, expected)) => {
            Err(StreamError::Mismatch { stream: want.name.clone(), setting, found, expected })
        }
    }
}
