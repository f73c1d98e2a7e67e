//! `tracing` on stderr, and OpenTelemetry export when an endpoint is configured.
//!
//! Stdout stays free: it carries results of commands and frames of evaluators.

use std::io::Write as _;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The variable of the OpenTelemetry specification that names the collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The variable that sets the log filter.
const FILTER: &str = "GRADIENT_LOG";

/// How a process logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Keeps the exporter alive; dropping it sends what is left.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown()
        {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "warning: the last spans could not be exported: {error}");
        }
    }
}

/// Starts logging for `service`. `GRADIENT_LOG` overrides `default_filter`; spans are exported only if
/// `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
///
/// # Errors
/// If the filter or the endpoint is malformed, or logging was started before.
pub fn init(
    service: &'static str,
    default_filter: &str,
    format: LogFormat,
) -> anyhow::Result<Telemetry> {
    let filter = std::env::var(FILTER).unwrap_or_else(|_| default_filter.to_owned());
    let filter = EnvFilter::try_new(&filter)
        .with_context(|| format!("{FILTER}='{filter}' is not a filter"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        // Who cannot write a line, because nobody reads it or the disk is full, must not panic to say so.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => {
            lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed()
        }
        LogFormat::Json => lines.json().boxed(),
    };
    let provider = exporter(service)?;
    let spans = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    tracing_subscriber::registry()
        .with(spans)
        .with(lines)
        .with(filter)
        .try_init()
        .context("logging was started before")?;
    Ok(Telemetry { provider })
}

/// The exporter, if a collector is configured. It is built on a thread of its own: its blocking HTTP
/// client must not be made inside an async runtime.
fn exporter(service: &'static str) -> anyhow::Result<Option<SdkTracerProvider>> {
    if std::env::var_os(ENDPOINT).is_none() {
        return Ok(None);
    }
    let built = std::thread::spawn(move || {
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build()?;
        let resource = opentelemetry_sdk::Resource::builder().with_service_name(service).build();
        Ok::<_, opentelemetry_otlp::ExporterBuildError>(
            SdkTracerProvider::builder()
                .with_batch_exporter(exporter)
                .with_resource(resource)
                .build(),
        )
    });
    let provider =
        built.join().map_err(|_| anyhow::anyhow!("building the span exporter panicked"))?;
    Ok(Some(provider.with_context(|| format!("the collector of {ENDPOINT} cannot be used"))?))
}
