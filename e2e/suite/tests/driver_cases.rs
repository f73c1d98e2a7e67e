//! The same flakes through the hidden harness: plans, lists and deferred shards of the real subprocess
//! add up to what everybody else finds.

use std::collections::BTreeMap;

use gradient_suite::eval_case::{BY_PATTERN, CASES, Case, NO_FLAKES, ODD_NAMES, SYSTEM};
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

/// A request about everything that these patterns match.
fn request(op: &str, reference: &str, patterns: &[&str]) -> Value {
    json!({ "op": op, "repository": reference, "wildcards": patterns })
}

#[test]
fn names_of_all_kinds_go_through_the_harness_and_back() {
    let local = Local::new();
    let [odd, long, deep] = ["N03", "N05", "R10"].map(|name| locked(&local, name));
    let leaf = format!("legacyPackages.x86_64-linux.deep{}.leaf", ".d".repeat(300));
    let requests = [
        request("plan", &odd, &["packages.x86_64-linux.*"]),
        request("list", &odd, &["packages.x86_64-linux.*"]),
        request("list", &long, &["packages.x86_64-linux.*"]),
        request("list", &deep, &[&leaf]),
    ];
    let responses = local.drive(&requests);
    let items = |response: &Value| -> Vec<Value> {
        assert_eq!(response["kind"], "list_ok", "{response}");
        let mut items = response["items"].as_array().expect("a list").clone();
        items.sort_by_key(|item| item["attr_path"][2].as_str().map(str::to_owned));
        items
    };
    let mut planned = responses[0]["shards"][0]["only"].as_array().expect("names").clone();
    planned.sort_by_key(|name| name.as_str().map(str::to_owned));
    assert_eq!(planned, ODD_NAMES.map(|(name, _)| name));
    let found = items(&responses[1]);
    let names = found.iter().map(|item| {
        let drv = gradient_suite::log::name_of(item["drv_path"].as_str().expect("a path"));
        (item["attr_path"][2].as_str().expect("a name"), drv)
    });
    assert!(names.eq(ODD_NAMES), "{found:#?}");
    let long: Vec<_> =
        items(&responses[2]).iter().map(|item| item["attr_path"][2].clone()).collect();
    assert_eq!(long, ["Foo", "foo", &"x".repeat(5_000)]);
    let leaf = items(&responses[3]);
    assert_eq!((leaf.len(), leaf[0]["attr_path"].as_array().map(Vec::len)), (1, Some(304)));

    // The printed form is a pattern for the same attribute.
    let again: Vec<Value> = found
        .iter()
        .map(|item| request("list", &odd, &[item["attr"].as_str().expect("text")]))
        .collect();
    for (response, item) in local.drive(&again).iter().zip(&found) {
        assert_eq!(items(response), std::slice::from_ref(item));
    }
}

#[test]
fn fifty_thousand_names_are_planned_without_a_value_and_listed_with_all_their_errors() {
    let local = Local::new();
    let reference = locked(&local, "R08");
    let pattern = "packages.x86_64-linux.*";
    let [plan] = &local.drive(&[request("plan", &reference, &[pattern])])[..] else {
        panic!("one response")
    };
    assert_eq!((&plan["kind"], &plan["errors"]), (&json!("plan_ok"), &json!([])));
    let names = plan["shards"][0]["only"].as_array().expect("names");
    assert_eq!((plan["shards"].as_array().map(Vec::len), names.len()), (Some(1), 50_000));
    let lists = names.chunks(64).map(|only| {
        let mut list = request("list", &reference, &[pattern]);
        list["only"] = only.to_vec().into();
        list
    });
    let responses = local.drive(&lists.collect::<Vec<_>>());
    assert!(responses.iter().all(|one| one.to_string().len() < 64 << 10), "one is over-long");
    let all = |key: &str| -> Vec<&Value> {
        responses.iter().flat_map(|one| one[key].as_array().expect("a list")).collect()
    };
    assert_eq!((all("items").len(), all("errors").len()), (1, 49_999));
    for error in all("errors") {
        let name = error["attr_path"][2].as_str().expect("a name");
        let message = error["message"].as_str().expect("a text");
        assert!(message.starts_with(&format!("forced {name}\n")), "{error}");
    }
}

#[test]
fn the_harness_says_why_a_flake_is_none() {
    let local = Local::new();
    let requests =
        NO_FLAKES.map(|(flake, _)| request("plan", &locked(&local, flake), &["packages.*"]));
    for (response, (flake, words)) in local.drive(&requests).iter().zip(NO_FLAKES) {
        let message = response["message"].as_str().unwrap_or_default();
        assert_eq!(response["kind"], "err", "{flake}: {response}");
        assert!(message.contains(words), "{flake}: {message}");
    }
}

#[test]
fn warnings_are_whole_and_beside_the_items() {
    let local = Local::new();
    let reference = locked(&local, "X06");
    let list = request("list", &reference, &["packages.x86_64-linux.*"]);
    // The second time its values are forced already: it may say less, and finds the same.
    let [first, second] = &local.drive(&[list.clone(), list])[..] else { panic!("two") };
    assert_eq!(
        first["warnings"],
        json!([
            "evaluation warning: old option",
            "evaluation warning: first line\nsecond line\nthird line",
        ])
    );
    assert_eq!(first["items"].as_array().map(Vec::len), Some(4));
    assert_eq!(first["items"], second["items"]);
    let fixed = request("list", &locked(&local, "D05"), &["packages.x86_64-linux.emptyHash"]);
    let warnings = local.drive(&[fixed])[0]["warnings"].to_string();
    assert_eq!(warnings.matches("found empty hash, assuming").count(), 1, "{warnings}");
}

#[test]
fn a_busy_subprocess_is_ended_by_the_time_limit_of_the_options() {
    let local = Local::new();
    let reference = locked(&local, "P14");
    let list =
        |name: &str| request("list", &reference, &[&format!("packages.x86_64-linux.{name}")]);
    let requests = [list("slow"), list("quick")];
    let responses = local.drive_with(&requests, &["--eval-call-timeout-secs", "2"]);
    let message = responses[0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("time limit of 2 s"), "{}", responses[0]);
    assert_eq!(responses[1]["items"].as_array().map(Vec::len), Some(1), "{}", responses[1]);
}
