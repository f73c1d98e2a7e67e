//! The same flakes through the hidden harness: plans, lists and deferred shards of the real subprocess
//! add up to what everybody else finds.

use std::collections::BTreeMap;

use gradient_suite::eval_case::{BY_PATTERN, CASES, Case, SYSTEM};
use gradient_suite::local::Local;
use serde_json::{Value, json};

/// Outputs of a flake that a bare `*` stands for.
const ROOTS: [&str; 7] = [
    "checks",
    "packages",
    "formatter",
    "legacyPackages",
    "nixosConfigurations",
    "devShells",
    "hydraJobs",
];

/// A locked reference to a flake of the tests.
fn locked(local: &Local, name: &str) -> String {
    let folder = local.shared(name);
    let path = folder.to_str().expect("text");
    let hash = local.nix("nix", &["hash", "path", path]).stdout;
    let hash = hash.trim().replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("path:{path}?narHash={hash}")
}

/// The patterns that have something to find, and those that take away.
fn patterns(case: &Case) -> (Vec<String>, Vec<String>) {
    let all = case.patterns().into_iter().flat_map(|pattern| match pattern {
        "*" => ROOTS.map(|root| format!("{root}.*")).to_vec(),
        pattern => vec![pattern.to_owned()],
    });
    all.partition(|pattern| !pattern.starts_with('!'))
}

/// What one case has come to.
#[derive(Default)]
struct Found {
    /// `attr name`.
    jobs: Vec<String>,
    errors: BTreeMap<String, String>,
}

impl Found {
    fn take(&mut self, response: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for item in response["items"].as_array().into_iter().flatten() {
            let attr = text(&item["attr"]);
            match item["drv_path"].as_str() {
                Some(drv) => {
                    let line = format!("{attr} {}", gradient_suite::log::name_of(drv));
                    self.jobs.push(line.replace(SYSTEM, "."));
                }
                None => drop(self.errors.insert(attr, text(&item["error"]))),
            }
        }
        for error in response["errors"].as_array().into_iter().flatten() {
            self.errors.insert(text(&error["attr"]), text(&error["message"]));
        }
    }
}

/// Plans and lists all cases together, wave by wave, in batches of this many names.
fn run(local: &Local, cases: &[(&Case, String)], batch: usize) -> Vec<Found> {
    let mut found: Vec<Found> = cases.iter().map(|_| Found::default()).collect();
    let plan = |(case, reference): &(&Case, String)| json!({ "op": "plan", "repository": reference, "wildcards": patterns(case).0 });
    let mut responses: Vec<(usize, Value)> =
        local.drive(&cases.iter().map(plan).collect::<Vec<_>>()).into_iter().enumerate().collect();
    let mut key = "shards";
    while !responses.is_empty() {
        let mut requests = Vec::new();
        for (at, response) in &responses {
            found[*at].take(response);
            for shard in response[key].as_array().into_iter().flatten() {
                let (case, reference) = &cases[*at];
                let mut wildcards = vec![shard["pattern"].as_str().expect("a pattern").to_owned()];
                wildcards.extend(patterns(case).1);
                let list = |only: Value| json!({ "op": "list", "repository": reference, "wildcards": wildcards, "only": only });
                match shard["only"].as_array() {
                    Some(names) => requests.extend(
                        names.chunks(batch).map(|names| (*at, list(names.to_vec().into()))),
                    ),
                    None => requests.push((*at, list(Value::Null))),
                }
            }
        }
        key = "deferred";
        let lines: Vec<Value> = requests.iter().map(|(_, request)| request.clone()).collect();
        let answers = if lines.is_empty() { Vec::new() } else { local.drive(&lines) };
        responses = requests.into_iter().map(|(at, _)| at).zip(answers).collect();
    }
    found
}

/// A case that kills the subprocess costs its calls here, where nobody asks again.
fn kills(case: &Case) -> bool {
    case.flake == "X02"
}

#[test]
fn the_harness_finds_what_every_case_holds() {
    let local = Local::new();
    let quiet = CASES.iter().chain(BY_PATTERN).filter(|case| !kills(case));
    let cases: Vec<_> = quiet.map(|case| (case, locked(&local, case.flake))).collect();
    for batch in [1, 3, 64] {
        for ((case, _), found) in cases.iter().zip(run(&local, &cases, batch)) {
            let what = format!("{} {:?}, batches of {batch}", case.flake, case.arguments);
            let mut jobs = found.jobs;
            jobs.sort();
            assert_eq!(jobs, case.jobs, "{what}");
            // That a name matched nothing is known when everything is over; the harness is no judge.
            let told = case.errors.iter().filter(|(_, words)| !words.contains("matched no"));
            let told: Vec<_> = told.collect();
            assert_eq!(found.errors.len(), told.len(), "{what}: {:#?}", found.errors);
            for ((attr, text), (end, words)) in found.errors.iter().zip(told) {
                assert!(attr.ends_with(end), "{what}: {attr} is not {end}");
                assert!(text.contains(words), "{what}: {text} does not say {words}");
            }
        }
    }
}

#[test]
fn what_kills_the_subprocess_is_a_response_and_the_next_call_gets_another() {
    let local = Local::new();
    let reference = locked(&local, "X02");
    let list = |name: &str| {
        let pattern = format!("packages.x86_64-linux.{name}");
        json!({ "op": "list", "repository": reference, "wildcards": [pattern] })
    };
    let names = ["a-good", "b-blackhole", "c-overflow", "d-json", "z-good"];
    let responses = local.drive(&names.map(list));
    let kinds: Vec<_> = responses.iter().map(|one| one["kind"].as_str().expect("text")).collect();
    assert_eq!(kinds, ["list_ok", "list_ok", "list_ok", "err", "list_ok"]);
    let message = responses[3]["message"].as_str().expect("text");
    for words in ["signal: ", "stack overflow (possible infinite recursion)", "peak memory "] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(responses[4]["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn fifty_thousand_names_are_planned_without_an_error_and_fail_one_by_one() {
    let local = Local::new();
    let reference = locked(&local, "R08");
    let pattern = "packages.x86_64-linux.*";
    let plan = json!({ "op": "plan", "repository": reference, "wildcards": [pattern] });
    let planned = &local.drive(&[plan])[0];
    assert_eq!(planned["errors"], json!([]), "a value was looked at");
    let shards = planned["shards"].as_array().expect("a list");
    assert_eq!(shards.len(), 1);
    let names = shards[0]["only"].as_array().expect("names");
    assert_eq!(names.len(), 50_000);
    let list = |names: &[Value]| json!({ "op": "list", "repository": reference, "wildcards": [pattern], "only": names });
    let lists: Vec<Value> = names.chunks(64).map(list).collect();
    let mut found = Found::default();
    for response in local.drive(&lists) {
        assert!(response.to_string().len() < 64 << 10, "one over-long response");
        found.take(&response);
    }
    assert_eq!((found.jobs, found.errors.len()), (vec![".p777 the-good-one".to_owned()], 49_999));
}
