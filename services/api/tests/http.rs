//! The api over a real PostgreSQL, filled from a history of the real scheduler.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../projections/postgres/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use common::history::{World, evaluation, history};
use common::{Running, append, database};
use futures_util::StreamExt;
use gradient_api::types::{
    Accepted, Anomaly, BuildDetail, BuildSummary, EntryPoint, ErrorBody, EvaluationState,
    EvaluationSummary, Jobs, Message, Page, Status, Submitted, Worker,
};
use gradient_api::{ApiSettings, ApiState, router, sweep_keys};
use gradient_domain::flake::FetchOptions;
use gradient_domain::{BuildId, EvaluationId};
use gradient_events::{Command, FlakeSource};
use gradient_log::Inbox;
use gradient_log::memory::{MemoryInbox, MemoryLog};
use gradient_postgres::ProjectorSettings;
use gradient_runtime::shutdown::CancellationToken;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::json;
use tower::ServiceExt;

const TOKEN: &str = "correct horse";

struct Fixture {
    router: Router,
    inbox: MemoryInbox,
    log: MemoryLog,
    world: World,
    running: Running,
    state: ApiState,
    keys: tempfile::TempDir,
    /// Entries of the world that are in the log.
    appended: usize,
}

impl Fixture {
    async fn new(name: &str, world: World) -> Self {
        let database = database(name).await;
        let (log, inbox) = (MemoryLog::default(), MemoryInbox::default());
        let last = append(&log, &world.entries, 3).await;
        let mut running = Running::start(&database, log.clone(), ProjectorSettings::default());
        running.reach(last).await;
        let (keys, appended) = (tempfile::tempdir().unwrap(), world.entries.len());
        let settings = settings(keys.path());
        let state = ApiState::new(settings, database, inbox.clone(), running.position.clone());
        Self { router: router(state.clone()), inbox, log, world, running, state, keys, appended }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, body.to_vec())
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let (status, body) = self.send(request(Method::GET, path, None)).await;
        let text = String::from_utf8_lossy(&body);
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    async fn refused(&self, request: Request<Body>) -> (StatusCode, ErrorBody) {
        let (status, body) = self.send(request).await;
        let text = String::from_utf8_lossy(&body);
        assert!(!status.is_success(), "{status}: {text}");
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| panic!("no error body: {text}")))
    }

    /// The newest command in the inbox, with the id of its message.
    async fn command(&self, sequence: u64) -> (uuid::Uuid, Command) {
        let received = self.inbox.receive(sequence).await.unwrap().next().await.unwrap().unwrap();
        assert_eq!(received.subject, "gradient.cmd.api");
        let envelope = received.envelope.unwrap();
        (envelope.id, envelope.decode(&received.body).unwrap())
    }
}

fn settings(keys: &Path) -> ApiSettings {
    ApiSettings {
        token: TOKEN.into(),
        key_dir: Some(keys.join("keys")),
        assignment_of: Arc::new(|token| token.strip_prefix("hand-out ")?.parse().ok()),
    }
}

fn request(method: Method, path: &str, body: Option<serde_json::Value>) -> Request<Body> {
    let builder = Request::builder()
        .method(method)
        .uri(format!("/api/v1{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    match body {
        None => builder.body(Body::empty()).unwrap(),
        Some(body) => builder
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_the_status_needs_the_token() {
    let fixture = Fixture::new("token", history(1, 100)).await;
    let paths = [
        "/evaluations",
        "/evaluations/x",
        "/builds/0",
        "/builds?drv=x",
        "/jobs",
        "/workers",
        "/anomalies",
        "/openapi.json",
        "/evaluations/x/live",
    ];
    for path in paths {
        for given in [None, Some("Bearer wrong"), Some("Bearer "), Some("correct horse")] {
            let mut request = request(Method::GET, path, None);
            request.headers_mut().remove(header::AUTHORIZATION);
            if let Some(given) = given {
                request.headers_mut().insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            let (status, body) = fixture.refused(request).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path} {given:?}");
            assert!(body.hint.unwrap().contains("Authorization: Bearer"));
        }
    }
    let mut open = request(Method::GET, "/status", None);
    open.headers_mut().remove(header::AUTHORIZATION);
    let (status, body) = fixture.send(open).await;
    assert_eq!(status, StatusCode::OK);
    let status: Status = serde_json::from_slice(&body).unwrap();
    assert_eq!(status.position, *fixture.running.position.borrow());
    assert_eq!(status.counts.evaluations, fixture.world.state.evaluations().len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_becomes_a_command() {
    let fixture = Fixture::new("submission", history(1, 10)).await;
    let body = json!({
        "flake": {"type": "reference", "url": "github:example/project"},
        "patterns": ["packages.*.*", "!packages.x86_64-linux.big"],
    });
    let (status, answer) = fixture.send(request(Method::POST, "/evaluations", Some(body))).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let Submitted { evaluation } = serde_json::from_slice(&answer).unwrap();
    let (id, command) = fixture.command(1).await;
    assert_eq!(id, evaluation.uuid(), "the id of the message is the evaluation's");
    assert_eq!(id.get_version_num(), 7);
    let flake = FlakeSource::Reference { url: "github:example/project".into() };
    let patterns = vec!["packages.*.*".into(), "!packages.x86_64-linux.big".into()];
    let fetch = Box::<FetchOptions>::default();
    assert_eq!(command, Command::Submit { evaluation, flake, patterns, fetch });

    let path = "/nix/store/b9d5lnjsb9d5lnjsb9d5lnjsb9d5lnjs-source";
    let nar_hash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let body = json!({
        "flake": {"type": "store", "path": path, "nar_hash": nar_hash},
        "patterns": ["*"],
    });
    let (status, _) = fixture.send(request(Method::POST, "/evaluations", Some(body))).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (_, command) = fixture.command(2).await;
    let Command::Submit { flake: FlakeSource::Store { label, subdir, .. }, .. } = command else {
        panic!("{command:?}");
    };
    assert_eq!((label.as_str(), subdir.as_str()), (path, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_in_one_sentence() {
    let fixture = Fixture::new("wrong", history(1, 10)).await;
    let reference = json!({"type": "reference", "url": "github:example/project"});
    let rows = [
        (json!({"flake": reference, "patterns": []}), StatusCode::BAD_REQUEST, "0 patterns"),
        (
            json!({"flake": reference, "patterns": ["a..b"]}),
            StatusCode::BAD_REQUEST,
            "empty segment",
        ),
        (
            json!({"flake": {"type": "reference", "url": "./here"}, "patterns": ["*"]}),
            StatusCode::BAD_REQUEST,
            "no flake reference that workers fetch",
        ),
        (json!({"patterns": ["*"]}), StatusCode::UNPROCESSABLE_ENTITY, "missing field `flake`"),
        (
            json!({"flake": reference, "patterns": ["*"], "pattern": 1}),
            StatusCode::UNPROCESSABLE_ENTITY,
            "unknown field `pattern`",
        ),
        (
            json!({"flake": reference, "patterns": ["x".repeat(300_000)]}),
            StatusCode::PAYLOAD_TOO_LARGE,
            "",
        ),
    ];
    for (body, expected, text) in rows {
        let (status, error) =
            fixture.refused(request(Method::POST, "/evaluations", Some(body))).await;
        assert_eq!(status, expected, "{error:?}");
        assert!(error.error.contains(text), "{error:?}");
    }
    let gone = evaluation(250);
    let rows = [
        (Method::GET, format!("/evaluations/{gone}"), StatusCode::NOT_FOUND),
        (Method::GET, format!("/evaluations/{gone}/builds"), StatusCode::NOT_FOUND),
        (Method::GET, format!("/evaluations/{gone}/live"), StatusCode::NOT_FOUND),
        (Method::POST, format!("/evaluations/{gone}/cancel"), StatusCode::NOT_FOUND),
        (Method::GET, "/evaluations/17".into(), StatusCode::BAD_REQUEST),
        (Method::GET, "/builds/ffffffff".into(), StatusCode::NOT_FOUND),
        (Method::GET, "/builds/xyz".into(), StatusCode::BAD_REQUEST),
        (Method::POST, "/builds/ffffffff/cancel".into(), StatusCode::NOT_FOUND),
        (Method::GET, "/builds".into(), StatusCode::BAD_REQUEST),
        (Method::GET, "/jobs?state=other".into(), StatusCode::BAD_REQUEST),
        (Method::GET, "/jobs?limit=501".into(), StatusCode::BAD_REQUEST),
        (Method::GET, "/jobs?after=junk".into(), StatusCode::BAD_REQUEST),
        (Method::GET, "/nothing".into(), StatusCode::NOT_FOUND),
        (Method::DELETE, "/jobs".into(), StatusCode::METHOD_NOT_ALLOWED),
    ];
    for (method, path, expected) in rows {
        let (status, error) = fixture.refused(request(method, &path, None)).await;
        assert_eq!(status, expected, "{path}: {error:?}");
        assert!(!error.error.is_empty(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_is_what_the_scheduler_knows() {
    let mut world = history(4, 900);
    world.finish();
    world.submit();
    let fixture = Fixture::new("shown", world).await;
    let state = &fixture.world.state;
    let evaluations: Page<EvaluationSummary> = fixture.get("/evaluations?limit=500").await;
    assert_eq!(evaluations.items.len(), state.evaluations().len());
    let mut points = 0;
    for known in state.evaluations() {
        let id = known.id;
        let shown: EvaluationSummary = fixture.get(&format!("/evaluations/{id}")).await;
        assert_eq!(shown.state, known.state);
        let builds: Page<BuildSummary> =
            fixture.get(&format!("/evaluations/{id}/builds?limit=500")).await;
        // The scheduler forgets what an ended evaluation wanted; the tables keep it.
        if !known.state.is_terminal() {
            assert_eq!(builds.items.len(), known.builds.len());
        }
        let path = format!("/evaluations/{id}/entry-points?limit=500");
        points += fixture.get::<Page<EntryPoint>>(&path).await.items.len();
        let messages: Page<Message> = fixture.get(&format!("/evaluations/{id}/messages")).await;
        assert_eq!(messages.items.len() as u64, shown.errors + shown.warnings);
    }
    assert!(points > 10, "{points} attributes");
    let build: BuildDetail = fixture.get("/builds/0").await;
    let same: BuildDetail = fixture.get(&format!("/builds?drv={}", build.build.drv_path)).await;
    assert_eq!(build, same);
    assert_eq!(build.build.id, BuildId(0));
    let jobs: Jobs = fixture.get("/jobs?state=pending&limit=500").await;
    assert_eq!(jobs.pending.len(), state.queue().len());
    let jobs: Jobs = fixture.get("/jobs?state=dispatched&limit=500").await;
    assert_eq!(jobs.dispatched.len(), state.assignments().len());
    let jobs: Jobs = fixture.get("/jobs?limit=500").await;
    let handed_out = common::history::assignments(&fixture.world.entries);
    assert_eq!(jobs.dispatched.len(), handed_out.min(500));
    assert_eq!(jobs.pending.len(), state.queue().len());
    let workers: Page<Worker> = fixture.get("/workers").await;
    assert_eq!(workers.items.len(), state.workers().len());
    let anomalies: Page<Anomaly> = fixture.get("/anomalies?limit=500").await;
    assert!(!anomalies.items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancels_become_commands_while_there_is_something_to_cancel() {
    let mut world = history(3, 200);
    world.finish();
    let over = world.state.evaluations()[0].id;
    let live = world.submit();
    let fixture = Fixture::new("cancel", world).await;
    let cancel = |path: String| request(Method::POST, &path, None);
    let (status, body) = fixture.send(cancel(format!("/evaluations/{live}/cancel"))).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(serde_json::from_slice::<Accepted>(&body).unwrap(), Accepted { accepted: true });
    let (_, command) = fixture.command(1).await;
    assert_eq!(command, Command::CancelEvaluation { evaluation: live });
    let (status, error) = fixture.refused(cancel(format!("/evaluations/{over}/cancel"))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error:?}");
    let (status, _) = fixture.refused(cancel("/builds/0/cancel".into())).await;
    assert_eq!(status, StatusCode::CONFLICT, "every build is over");
}

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n";

fn key_request(evaluation: EvaluationId, token: &str) -> Request<Body> {
    let path = format!("/evaluations/{evaluation}/ssh-key");
    let mut request = request(Method::GET, &path, None);
    request.headers_mut().insert(header::AUTHORIZATION, token.parse().unwrap());
    request
}

async fn until_gone(file: &Path) {
    let gone = async {
        while file.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(common::LIMIT, gone).await.expect("the key is deleted");
}

impl Fixture {
    /// Steps the world until something holds, and appends what came of it.
    async fn until(&mut self, holds: impl Fn(&World) -> bool) {
        let before = self.appended;
        while !holds(&self.world) {
            self.world.step();
        }
        self.appended = self.world.entries.len();
        let last = append(&self.log, &self.world.entries[before..], 3).await;
        self.running.reach(last).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_to_the_hand_out_of_its_evaluation_and_then_away() {
    let mut world = World::new(11);
    world.join(0, true);
    let over = world.submit();
    world.command(Command::CancelEvaluation { evaluation: over });
    assert!(world.state.evaluation(over).unwrap().state.is_terminal());
    let mut fixture = Fixture::new("keys", world).await;
    let body = json!({"flake": {"type": "reference", "url": "git+ssh://git@host/x"},
        "patterns": ["packages.*.*"], "ssh_key": KEY});
    let submit = request(Method::POST, "/evaluations", Some(body.clone()));
    let (status, answer) = fixture.send(submit).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let Submitted { evaluation: id } = serde_json::from_slice(&answer).unwrap();
    let (_, command) = fixture.command(1).await;
    let Command::Submit { fetch, .. } = &command else { panic!("{command:?}") };
    assert!(fetch.has_ssh_key && !format!("{command:?}").contains("secret"));
    let file = fixture.keys.path().join("keys").join(id.to_string());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), KEY);

    fixture.world.command(command);
    let assignment = |world: &World| world.state.evaluation(id).unwrap().assignment;
    fixture.until(|world| assignment(world).is_some()).await;
    let token = format!("Bearer hand-out {}", assignment(&fixture.world).unwrap());
    let (status, text) = fixture.send(key_request(id, &token)).await;
    assert_eq!((status, text.as_slice()), (StatusCode::OK, KEY.as_bytes()));
    for (token, expected) in [
        ("Bearer hand-out a999", StatusCode::FORBIDDEN),
        ("Bearer correct horse", StatusCode::UNAUTHORIZED),
        ("hand-out a1", StatusCode::UNAUTHORIZED),
    ] {
        let (status, _) = fixture.refused(key_request(id, token)).await;
        assert_eq!(status, expected, "{token}");
    }

    let left = file.with_file_name(over.to_string());
    std::fs::write(&left, KEY).unwrap();
    let sweep = || {
        let stop = CancellationToken::new();
        (tokio::spawn(sweep_keys(fixture.state.clone(), stop.clone())), stop)
    };
    let (first, stop) = sweep();
    until_gone(&left).await;
    stop.cancel();
    first.await.unwrap();
    assert!(file.exists(), "it is kept until the evaluation is over");
    let (second, stop) = sweep();
    fixture.world.command(Command::CancelEvaluation { evaluation: id });
    fixture.until(|world| world.state.evaluation(id).unwrap().state.is_terminal()).await;
    until_gone(&file).await;
    stop.cancel();
    second.await.unwrap();
    std::fs::write(&file, KEY).unwrap();
    let (status, _) = fixture.refused(key_request(id, &token)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "the hand-out is to stop");

    let mut wrong = body;
    wrong["ssh_key"] = json!("ssh-ed25519 AAAA x");
    let (status, error) = fixture.refused(request(Method::POST, "/evaluations", Some(wrong))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{error:?}");
    assert!(!error.error.contains("AAAA"), "{error:?}");
}

/// The summaries of a stream, to its end.
async fn summaries(body: Body) -> Vec<EvaluationSummary> {
    let bytes = tokio::time::timeout(common::LIMIT, body.collect()).await;
    let bytes = bytes.expect("the stream ends").unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_stream_shows_changes_and_ends_with_the_evaluation() {
    let mut world = World::new(9);
    for n in 0..4 {
        world.join(n, true);
    }
    let id = world.submit();
    let before = world.entries.len();
    world.finish();
    let rest = world.entries.split_off(before);
    let fixture = Fixture::new("live", world).await;
    let path = format!("/evaluations/{id}/live");
    let response = fixture.router.clone().oneshot(request(Method::GET, &path, None)).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let reading = tokio::spawn(summaries(response.into_body()));
    let mut running = fixture.running;
    for chunk in rest.chunks(rest.len() / 4 + 1) {
        let last = append(&fixture.log, chunk, 3).await;
        running.reach(last).await;
        tokio::task::yield_now().await;
    }
    let shown = reading.await.unwrap();
    let (first, last) = (shown.first().unwrap(), shown.last().unwrap());
    assert!(!first.is_over() && last.is_over(), "{shown:?}");
    assert_eq!(last.state, EvaluationState::Completed);
    assert_eq!(last.builds.total(), last.builds.succeeded());
    assert_eq!(shown.iter().filter(|s| s.is_over()).count(), 1, "it ends at the end");
    assert!(shown.windows(2).all(|pair| pair[0] != pair[1]), "only changes are sent");
}

/// Whoever submits may ask at once: the rows are on their way.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_evaluation_is_waited_for() {
    let mut world = World::new(2);
    world.join(0, true);
    let mut fixture = Fixture::new("fresh", world).await;
    let id = EvaluationId::from(uuid::Uuid::now_v7());
    let path = format!("/evaluations/{id}");
    let asking = fixture.router.clone().oneshot(request(Method::GET, &path, None));
    let asking = tokio::spawn(asking);
    tokio::task::yield_now().await;
    let before = fixture.world.entries.len();
    let flake = FlakeSource::Reference { url: "github:example/fresh".into() };
    let (patterns, fetch) = (vec!["*".into()], Box::<FetchOptions>::default());
    fixture.world.command(Command::Submit { evaluation: id, flake, patterns, fetch });
    append(&fixture.log, &fixture.world.entries[before..], 1).await;
    assert_eq!(asking.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_described() {
    let fixture = Fixture::new("described", history(1, 10)).await;
    let document: serde_json::Value = fixture.get("/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    let routes = [
        ("/evaluations", "get"),
        ("/evaluations", "post"),
        ("/evaluations/{id}", "get"),
        ("/evaluations/{id}/cancel", "post"),
        ("/evaluations/{id}/entry-points", "get"),
        ("/evaluations/{id}/builds", "get"),
        ("/evaluations/{id}/messages", "get"),
        ("/evaluations/{id}/live", "get"),
        ("/builds", "get"),
        ("/builds/{id}", "get"),
        ("/builds/{id}/cancel", "post"),
        ("/jobs", "get"),
        ("/workers", "get"),
        ("/anomalies", "get"),
        ("/status", "get"),
    ];
    for (path, method) in routes {
        assert!(paths[path][method].is_object(), "{method} {path} is not described");
    }
    let described: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(described, routes.len(), "no route is described that is not there");
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "schema {name} is missing");
    }
}
