//! Evaluation caches over HTTP: given, looked at, fetched, replaced, swept.

mod service;

use std::path::Path;
use std::time::{Duration, SystemTime};

use gradient_cache::{EVAL_CACHE_SIZE_HEADER, EvalCacheAnswer};
use gradient_domain::pattern::PatternSet;
use gradient_evalcache::{EvalCache, Finding, Request, inspect, snapshot};
use gradient_ipc::shard::Recursion;
use reqwest::{Response, StatusCode};
use service::{CLUSTER, Service, text, worker_token};

fn fingerprint(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A cache that answers these requests, each for nothing.
fn cache(fingerprint: &str, answers: &[Recursion]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("one.sqlite");
    let open = || EvalCache::open(&path, fingerprint).expect("a cache");
    for recursion in answers {
        let patterns = PatternSet { includes: Vec::new(), excludes: Vec::new() };
        let request = Request::new(patterns, *recursion);
        assert!(open().complete(&request, &[], |_| true).expect("noted"));
    }
    let copy = dir.path().join("copy");
    snapshot(&open(), &copy).expect("copied");
    std::fs::read(copy).expect("read")
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("compresses")
}

fn token() -> String {
    worker_token("eval:00000001", "a1")
}

impl Service {
    async fn give(&self, fingerprint: &str, token: &str, body: Vec<u8>) -> Response {
        let request = self.client.put(format!("{}/eval-cache/{fingerprint}", self.url));
        request.bearer_auth(token).body(body).send().await.expect("answers")
    }

    async fn give_new(&self, fingerprint: &str, cache: &[u8]) -> bool {
        let answer = self.give(fingerprint, &token(), compress(cache)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json::<EvalCacheAnswer>().await.expect("JSON").is_new
    }

    async fn fetch(&self, fingerprint: &str) -> Option<Vec<u8>> {
        let answer = self.get(&format!("/eval-cache/{fingerprint}")).await;
        if answer.status() == StatusCode::NOT_FOUND {
            return None;
        }
        assert_eq!(answer.status(), StatusCode::OK);
        let size = answer.headers()[EVAL_CACHE_SIZE_HEADER].to_str().expect("text").to_owned();
        let body = answer.bytes().await.expect("body");
        let cache = zstd::decode_all(body.as_ref()).expect("decompresses");
        assert_eq!(size, cache.len().to_string());
        Some(cache)
    }

    fn kept(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in ["eval-cache", "eval-cache/staging"] {
            let entries = std::fs::read_dir(self.dir.path().join(folder)).expect("lists").flatten();
            let files = entries.filter(|entry| entry.path().is_file());
            names.extend(files.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        }
        names.retain(|name| name != ".lock");
        names
    }
}

fn well(cache: &[u8], fingerprint: &str) -> usize {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("got");
    std::fs::write(&path, cache).expect("written");
    match inspect(&path, fingerprint).expect("looked at") {
        Finding::Well { requests, .. } => requests.len(),
        Finding::Useless(reason) => panic!("{reason}"),
    }
}

#[tokio::test]
async fn a_cache_is_given_and_fetched() {
    let service = Service::start().await;
    let one = fingerprint('a');
    assert_eq!(service.fetch(&one).await, None);
    let cache = cache(&one, &[Recursion::Pattern]);
    assert!(service.give_new(&one, &cache).await);
    let got = service.fetch(&one).await.expect("there");
    assert_eq!(well(&got, &one), 1);
    assert_eq!(got, cache);
    assert_eq!(service.fetch(&fingerprint('b')).await, None);
    assert_eq!(service.kept(), [format!("{one}.sqlite")]);
}

#[tokio::test]
async fn a_large_cache_comes_in_pieces() {
    let service = Service::start().await;
    let one = fingerprint('a');
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("large.sqlite");
    // A warning that does not compress well makes it large.
    let digits =
        |n: u32| format!("{:x}", u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060));
    let warnings: Vec<_> =
        (0..1000).map(|n| (None, (0..100).map(|m| digits(n * 100 + m + 1)).collect())).collect();
    let patterns = PatternSet { includes: Vec::new(), excludes: Vec::new() };
    let request = Request::new(patterns, Recursion::Tree);
    let cache = EvalCache::open(&path, &one).expect("a cache");
    assert!(cache.complete(&request, &warnings, |_| true).expect("noted"));
    let copy = dir.path().join("copy");
    snapshot(&EvalCache::open(&path, &one).expect("a cache"), &copy).expect("copied");
    let cache = std::fs::read(copy).expect("read");
    assert!(cache.len() > 1 << 20, "{}", cache.len());
    assert!(service.give_new(&one, &cache).await);
    assert!(service.fetch(&one).await.expect("there") == cache, "it came back otherwise");
}

#[tokio::test]
async fn readers_who_take_nothing_hold_no_turn() {
    let service = Service::start_with(|settings| settings.stall_secs = 1).await;
    let (one, two) = (fingerprint('a'), fingerprint('b'));
    for fingerprint in [&one, &two] {
        assert!(service.give_new(fingerprint, &cache(fingerprint, &[Recursion::Tree])).await);
    }
    // More than the sockets on the way can hold, and nothing that compresses.
    let mut seed = 1_u64;
    let noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(24 << 20).collect();
    let file = service.dir.path().join(format!("eval-cache/{one}.sqlite"));
    std::fs::write(file, noise).expect("written");
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(service.get(&format!("/eval-cache/{one}")).await);
    }
    assert!(service.fetch(&two).await.is_some());
    // Somebody gave up a turn for that: the one who was cut off, which a part shows.
    let mut cut = 0;
    for reader in idle {
        cut += usize::from(reader.bytes().await.is_err());
    }
    assert!(cut > 0, "a part does not look like the whole");
}

/// A cache whose file was changed by hand.
fn harmed(fingerprint: &str, harm: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = cache(fingerprint, &[Recursion::Pattern]);
    harm(&mut bytes);
    compress(&bytes)
}

#[tokio::test]
async fn what_is_not_well_is_refused_and_leaves_nothing() {
    let service =
        Service::start_with(|settings| settings.eval_cache_size_max_bytes = 1 << 20).await;
    let (one, other) = (fingerprint('a'), fingerprint('b'));
    let good = || compress(&cache(&one, &[Recursion::Pattern]));
    // A frame of zstd that decompresses to nothing.
    let head = [&0x184d_2a50_u32.to_le_bytes()[..], &(2_u32 << 20).to_le_bytes()].concat();
    let skipped = [head, vec![0; 2 << 20]].concat();
    let (worker, builder) = (token(), worker_token("build:00000001", "a1"));
    let rows = [
        ("", one.as_str(), good(), 401, "needed"),
        ("x.y", &one, good(), 401, "not valid"),
        (CLUSTER, &one, good(), 403, "evaluations only"),
        (&builder, &one, good(), 403, "evaluations only"),
        (&worker, "..%2f..%2fetc", good(), 400, "64 digits"),
        (&worker, &one[1..], good(), 400, "64 digits"),
        (&worker, &other, good(), 422, "another flake"),
        (&worker, &one, compress(&cache(&one, &[])), 422, "no evaluation"),
        (&worker, &one, cache(&one, &[Recursion::Pattern]), 422, "not compressed"),
        (&worker, &one, compress(&b"SQLite format 3\0 and so on".repeat(100)), 422, "damaged"),
        (&worker, &one, harmed(&one, |bytes| bytes.truncate(bytes.len() / 2)), 422, "damaged"),
        (&worker, &one, harmed(&one, |bytes| bytes[4200..].fill(0x5a)), 422, "damaged"),
        (&worker, &one, Vec::new(), 422, "another flake"),
        (&worker, &one, compress(&vec![0; 50 << 20]), 413, "limit of 1048576"),
        (&worker, &one, skipped, 413, "the compressed evaluation cache is over"),
    ];
    for (token, fingerprint, body, status, words) in rows {
        let answer = service.give(fingerprint, token, body).await;
        let got = answer.status().as_u16();
        let message = text(answer).await;
        assert_eq!(got, status, "{message} for {words}");
        assert!(message.contains(words), "{message} for {words}");
        assert_eq!(service.kept(), Vec::<String>::new(), "{words}");
    }
    assert_eq!(service.fetch(&one).await, None);
    assert_eq!(service.get("/eval-cache/x").await.status(), StatusCode::BAD_REQUEST);
    let answer = service.give(&one, &worker, good()).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_cache_gives_way_only_to_one_that_answers_more() {
    use Recursion::{Marked, Pattern, Tree, WholeTree};
    let service = Service::start().await;
    let one = fingerprint('a');
    let rows: [(&[Recursion], bool, usize); 7] = [
        (&[Pattern], true, 1),
        (&[Pattern], false, 1),
        (&[Tree], false, 1),
        (&[Pattern, Tree], true, 2),
        (&[Tree, Marked], false, 2),
        (&[Tree, Marked, WholeTree], false, 2),
        (&[Tree, Marked, Pattern], true, 3),
    ];
    for (answers, is_new, left) in rows {
        assert_eq!(service.give_new(&one, &cache(&one, answers)).await, is_new, "{answers:?}");
        let got = service.fetch(&one).await.expect("there");
        assert_eq!(well(&got, &one), left, "{answers:?}");
    }
    // One that was damaged here gives way to any.
    let file = service.dir.path().join(format!("eval-cache/{one}.sqlite"));
    std::fs::write(&file, "damaged").expect("written");
    assert!(service.give_new(&one, &cache(&one, &[Tree])).await);
    assert_eq!(service.kept(), [format!("{one}.sqlite")]);
}

fn age(file: &Path, age: Duration) {
    let opened = std::fs::File::options().append(true).open(file).expect("opens");
    opened.set_modified(SystemTime::now() - age).expect("set");
}

#[tokio::test]
async fn what_nobody_uses_goes_first() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let cache = |of: &str| cache(of, &[Recursion::Pattern]);
    let names = ['a', 'b', 'c'].map(fingerprint);
    let room = cache(&names[0]).len() as u64 * 2;
    let service = Service::start_with(|settings| settings.eval_cache_total_max_bytes = room).await;
    let file = |name: &str| service.dir.path().join(format!("eval-cache/{name}.sqlite"));
    for name in &names[..2] {
        assert!(service.give_new(name, &cache(name)).await);
    }
    age(&file(&names[0]), 2 * DAY);
    age(&file(&names[1]), DAY);
    // To be fetched is to be of use.
    assert!(service.fetch(&names[0]).await.is_some());
    assert!(service.give_new(&names[2], &cache(&names[2])).await);
    assert!(!file(&names[1]).exists() && file(&names[0]).exists() && file(&names[2]).exists());

    age(&file(&names[0]), 31 * DAY);
    assert_eq!(service.state.sweep_eval_caches(SystemTime::now()).await.expect("swept"), 1);
    assert!(!file(&names[0]).exists() && file(&names[2]).exists());
}

#[tokio::test]
async fn what_an_earlier_process_left_is_removed() {
    let service = Service::start().await;
    let dir = tempfile::tempdir().expect("temporary folder");
    let staging = dir.path().join("eval-cache/staging");
    std::fs::create_dir_all(&staging).expect("made");
    std::fs::write(staging.join("half.sqlite"), "half").expect("written");
    drop(service);
    let settings =
        gradient_cache::CacheSettings::new(dir.path(), "test-1", b"0123456789abcdef".to_vec());
    let _state = gradient_cache::CacheState::open(settings).expect("opens");
    assert!(!staging.join("half.sqlite").exists());
}

#[tokio::test]
async fn a_folder_that_somebody_removed_comes_back() {
    let service = Service::start().await;
    let of = fingerprint('a');
    let given = cache(&of, &[Recursion::Pattern]);
    assert!(service.give_new(&of, &given).await);
    std::fs::remove_dir_all(service.dir.path().join("eval-cache")).expect("removed");
    assert!(service.fetch(&of).await.is_none());
    assert!(service.give_new(&of, &given).await);
    assert!(service.fetch(&of).await.is_some());
}
