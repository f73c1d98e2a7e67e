//! Flakes that others stumbled over, on a real Nix, with one subprocess and with three.

mod common;
mod heads;
mod host;

use common::{Run, attributes, discover, errors};
use gradient_domain::pattern::PatternSet;
use gradient_pool::driver::{Asked, Locked};
use gradient_pool::{DiscoverError, Evaluation, Found, Pool};
use heads::assert_errors;
use host::NixHost;

const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");
const PACKAGES: &str = "packages.x86_64-linux.*";

/// A host and a locked reference to one flake of `tests/flakes`.
fn host_with(name: &str) -> (NixHost, String) {
    let host = NixHost::start();
    let file = format!("{}/tests/flakes/{name}.nix", env!("CARGO_MANIFEST_DIR"));
    let flake = host.flake(name, &std::fs::read_to_string(file).expect("flake"));
    (host, flake)
}

/// Evaluates with pools of one and of three, which must agree.
async fn both(host: &NixHost, flake: &str, patterns: &str) -> Run {
    let mut runs = Vec::new();
    for children in [1, 3] {
        let pool = Pool::new(host.settings(CHILD, children)).expect("pool");
        let (found, summary) = discover(&pool, flake, patterns).await;
        assert_eq!(pool.children_idle(), 0, "idle children end with the evaluation");
        pool.shutdown().await;
        runs.push((found.into_iter().map(without_peak).collect(), summary));
    }
    let (second, first): (Run, Run) = (runs.pop().expect("second"), runs.pop().expect("first"));
    assert_eq!(first.0, second.0, "one subprocess and three must find the same");
    assert_eq!(first.1.is_ok(), second.1.is_ok());
    for result in &second.0 {
        if let Found::Attribute { drv_path, .. } = result {
            let file = host.real_store().join(drv_path.base_name());
            assert!(file.exists(), "{drv_path} is not in the store");
        }
    }
    second
}

/// The warnings.
fn warnings(found: &[Found]) -> Vec<String> {
    let line = |result: &Found| match result {
        Found::Warning { text, .. } => Some(text.clone()),
        Found::Attribute { .. } | Found::Error { .. } => None,
    };
    found.iter().filter_map(line).collect()
}

/// How much memory a crashed child had is the one thing that differs between runs.
fn without_peak(found: Found) -> Found {
    match found {
        Found::Error { path, message } => {
            let message = message.split(", peak memory").next().unwrap_or_default().to_owned();
            Found::Error { path, message }
        }
        other => other,
    }
}

/// What the patterns find, with no error of the whole and no warning.
async fn found(name: &str, patterns: &str) -> (Vec<String>, Vec<String>) {
    let (host, flake) = host_with(name);
    let (found, summary) = both(&host, &flake, patterns).await;
    let summary = summary.expect("evaluated");
    assert_eq!(summary.attributes as usize, attributes(&found).len());
    assert_eq!(summary.errors as usize, errors(&found).len());
    assert_eq!(warnings(&found), Vec::<String>::new());
    (attributes(&found), errors(&found))
}

#[tokio::test(flavor = "multi_thread")]
async fn n01_a_dot_in_a_name() {
    let expected = [
        "packages.x86_64-linux.plain plain.drv",
        "packages.x86_64-linux.\"tool-1.2\" tool-dotted.drv",
    ];
    for patterns in [PACKAGES, "packages.*.*", "packages.#.#", "*", "packages.*,packages.*.plain"] {
        assert_eq!(found("N01", patterns).await, (expected.map(str::to_owned).into(), vec![]));
    }
    let (exact, errors) = found("N01", "packages.x86_64-linux.\"tool-1.2\"").await;
    assert_eq!((exact, errors), (vec![expected[1].to_owned()], vec![]));
    let (rest, errors) = found("N01", "*,!packages.x86_64-linux.\"tool-1.2\"").await;
    assert_eq!((rest, errors), (vec![expected[0].to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn n03_odd_names_go_there_and_back() {
    let (host, flake) = host_with("N03");
    let pool = Pool::new(host.settings(CHILD, 3)).expect("pool");
    let (all, _) = discover(&pool, &flake, PACKAGES).await;
    assert_eq!((attributes(&all).len(), errors(&all).len()), (13, 0));
    let mut printed: Vec<_> = all
        .iter()
        .filter_map(|result| match result {
            Found::Attribute { path, .. } => Some(path.to_string()),
            Found::Error { .. } | Found::Warning { .. } => None,
        })
        .collect();
    for path in &printed {
        let (one, _) = discover(&pool, &flake, path).await;
        assert_eq!(one.len(), 1, "{path}");
        assert!(all.contains(&one[0]), "{path}");
    }
    printed.sort();
    let (again, _) = discover(&pool, &flake, &printed.join(",")).await;
    assert_eq!(again, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn r01_recursion_follows_the_pattern() {
    let (attributes, errors) = found("R01", "legacyPackages.x86_64-linux.*").await;
    let expected = [
        "legacyPackages.x86_64-linux.absent.inner absent-inner.drv",
        "legacyPackages.x86_64-linux.no.inner no-inner.drv",
        "legacyPackages.x86_64-linux.top top.drv",
        "legacyPackages.x86_64-linux.yes.inner yes-inner.drv",
    ];
    assert_eq!((attributes, errors), (expected.map(str::to_owned).into(), vec![]));
    let (attributes, errors) = found("R01", "legacyPackages.x86_64-linux.absent.inner").await;
    assert_eq!((attributes, errors), (vec![expected[0].to_owned()], vec![]));
    let (attributes, errors) = found("R01", "legacyPackages.*").await;
    assert_eq!((attributes, errors), (vec![expected[2].to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_functions_are_no_derivations() {
    for patterns in [PACKAGES, "*", "packages.x86_64-linux.#"] {
        let (attributes, errors) = found("R04", patterns).await;
        assert_eq!(
            attributes,
            [
                "packages.x86_64-linux.functorDrv callable-drv.drv",
                "packages.x86_64-linux.ok ok.drv",
            ]
        );
        assert_errors(
            &errors,
            &[
                (".fn", "not a derivation (a function)"),
                (".functorSet", "not a derivation (a set that is called like a function)"),
            ],
        );
    }
    let (_, errors) = found("R04", "packages.x86_64-linux.fn").await;
    assert_errors(&errors, &[(".fn", "not a derivation (a function)")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r05_what_only_looks_like_a_derivation_is_none() {
    let (attributes, errors) = found("R05", PACKAGES).await;
    assert_eq!(attributes, ["packages.x86_64-linux.real real.drv"]);
    assert_errors(
        &errors,
        &[
            (".drvPathIsOut", "does not end in .drv"),
            (".drvPathIsText", "'not-a-path' is not a store path"),
            (".fakeType", "without drvPath"),
            (".justString", "not a derivation (a string)"),
            (".onlyOutPath", "a set that stands for a path"),
            (".toStringSet", "a set that is printed as a string"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r06_a_check_that_cannot_be_built_is_an_error() {
    let mut expected = vec![
        (".empty", "an empty set"),
        (".fn", "a function"),
        (".int", "an integer"),
        (".list", "a list"),
        (".nul", "null"),
        (".path", "a path"),
        (".set", "a set"),
        (".str", "a string"),
    ];
    for patterns in ["*", "checks.*", "checks.x86_64-linux.#"] {
        let (attributes, errors) = found("R06", patterns).await;
        assert_eq!(attributes, ["checks.x86_64-linux.good good-check.drv"]);
        assert_errors(&errors, &expected);
    }
    // This pattern looks into the set, and there is a check in it.
    let (attributes, errors) = found("R06", "checks.x86_64-linux.*").await;
    assert_eq!(attributes.len(), 2);
    assert!(attributes.contains(&"checks.x86_64-linux.set.inner in-set.drv".to_owned()));
    expected.retain(|(name, _)| *name != ".set");
    assert_errors(&errors, &expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn r07_levels_that_are_missing_or_wrong() {
    let (attributes, errors) = found("R07", "*").await;
    assert_eq!(
        attributes,
        [
            "checks.app no-system-level.drv",
            "packages.aarch64-darwin.linuxInDarwin wrong-folder.drv",
            "packages.aarch64-linux.app app-arm.drv",
            "packages.riscv64-none.app app-odd.drv",
            "packages.x86_64-linux one-level-too-high.drv",
        ]
    );
    assert_eq!(errors, Vec::<String>::new());
    let (attributes, errors) = found("R07", PACKAGES).await;
    assert_eq!(attributes, Vec::<String>::new());
    assert_errors(&errors, &[("packages.x86_64-linux", "is a derivation, not a set")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_flakes_without_usable_outputs() {
    let (host, flake) = host_with("R11-empty");
    let (found, summary) = both(&host, &flake, "*").await;
    assert_eq!(summary.expect("evaluated").attributes, 0);
    assert_eq!(warnings(&found), ["pattern '*' matched no derivations in the flake"]);
    let (found, _) = both(&host, &flake, "packages.*,packages.x86_64-linux.hello").await;
    assert_eq!(warnings(&found), ["pattern 'packages.*' matched no derivations in the flake"]);
    assert_errors(
        &errors(&found),
        &[(".hello", "target 'packages.x86_64-linux.hello' matched no derivations in the flake")],
    );
    let broken = [
        ("none", "lacks attribute 'outputs'"),
        ("notfn", "expected a function but got an integer"),
        ("throws", "outputs boom\nat /nix/store/"),
        ("missing-arg", "cannot update unlocked flake input 'tools' in pure mode"),
        ("syntax", "syntax error, unexpected ';'"),
        ("computed", "must be an attribute set"),
    ];
    for (name, text) in broken {
        let (host, flake) = host_with(&format!("R11-{name}"));
        let (found, summary) = both(&host, &flake, "*").await;
        assert_eq!(found, [], "{name}");
        let Err(DiscoverError::Flake { message }) = summary else { panic!("{name}: {summary:?}") };
        assert!(message.contains(text), "{name}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r12_one_derivation_under_several_names() {
    let (attributes, errors) = found("R12", "*").await;
    assert_eq!((attributes.len(), errors.len()), (5, 0), "{attributes:?}");
    assert!(attributes.iter().all(|line| line.ends_with(" app.drv")));
}

#[tokio::test(flavor = "multi_thread")]
async fn r13_the_walk_stops_at_a_derivation() {
    let (attributes, errors) = found("R13", "packages.*").await;
    assert_eq!((attributes, errors.len()), (vec!["packages.x86_64-linux.app app.drv".into()], 0));
    let (attributes, errors) = found("R13", "packages.x86_64-linux.app.tests.unit").await;
    assert_eq!((attributes.len(), errors.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn x01_every_error_is_its_own() {
    let (attributes, errors) = found("X01", PACKAGES).await;
    assert_eq!(attributes.len(), 2);
    assert_errors(
        &errors,
        &[
            (".b-throw", "unfree: licence not accepted\nat /nix/store/"),
            (".c-abort", "hard stop"),
            (".d-assert", "is not equal to"),
            (".e-missing", "attribute 'nope' missing\nat /nix/store/"),
            (".f-type", "cannot add a string to an integer"),
            (".g-broken", "marked as broken, refusing to evaluate"),
        ],
    );
    assert!(errors.iter().all(|error| error.contains("flake.nix:")), "{errors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn x02_recursion_costs_its_attribute_only() {
    let (host, flake) = host_with("X02");
    let (found, summary) = both(&host, &flake, PACKAGES).await;
    assert_eq!(attributes(&found).len(), 2);
    assert_errors(
        &errors(&found),
        &[
            (".b-blackhole", "infinite recursion encountered"),
            (".c-overflow", "stack overflow; max-call-depth exceeded"),
            (".d-json", "stack overflow (possible infinite recursion)"),
        ],
    );
    assert_eq!(summary.expect("evaluated").crashes, 2, "one crash and one retry");
}

#[tokio::test(flavor = "multi_thread")]
async fn x04_broken_derivations_have_their_own_texts() {
    let (attributes, errors) = found("X04", PACKAGES).await;
    assert_eq!(attributes, ["packages.x86_64-linux.good good.drv"]);
    assert_errors(
        &errors,
        &[
            (".badArg", "arg boom"),
            (".badEnv", "env boom"),
            (".badName", "name boom"),
            (".badOutputs", "empty list"),
            (".badSystem", "system boom"),
            (".dupOutputs", "duplicate derivation output 'out'"),
            (".emptyName", "name must not be empty"),
            (".illegalName", "illegal character ' '"),
            (".noBuilder", "'builder' missing"),
            (".nullSystem", "'system' missing"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn x06_warnings_are_whole_and_told_once() {
    let (host, flake) = host_with("X06");
    let (found, summary) = both(&host, &flake, PACKAGES).await;
    assert_eq!((attributes(&found).len(), errors(&found).len()), (4, 0));
    let told = |name: &str, text: &str| Found::Warning {
        path: Some(["packages", "x86_64-linux", name].into_iter().collect()),
        text: text.to_owned(),
    };
    let warnings: Vec<_> =
        found.into_iter().filter(|found| matches!(found, Found::Warning { .. })).collect();
    assert_eq!(
        warnings,
        [
            told("both", "evaluation warning: old option"),
            told("warned", "evaluation warning: first line\nsecond line\nthird line"),
        ]
    );
    assert!(summary.expect("evaluated").usage.alloc_bytes.is_some_and(|bytes| bytes > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_checkout_is_evaluated_at_its_revision() {
    let host = NixHost::start();
    let repository = host.path().join("repository");
    std::fs::create_dir_all(&repository).expect("folder");
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-C"])
            .arg(&repository)
            .args(arguments)
            .output()
            .expect("git");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let flake = |name: &str| {
        format!(
            r#"{{ outputs = {{ self }}: {{ packages.x86_64-linux.app = derivation {{
              name = "{name}"; system = "x86_64-linux"; builder = "/bin/sh"; }}; }}; }}"#
        )
    };
    git(&["init", "-q"]);
    std::fs::write(repository.join("flake.nix"), flake("first")).expect("flake.nix");
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    let revision = git(&["rev-parse", "HEAD"]);
    std::fs::write(repository.join("flake.nix"), flake("dirty")).expect("flake.nix");
    let reference = format!("git+file://{}?rev={revision}", repository.display());
    let (found, _) = both(&host, &reference, "packages.*").await;
    assert_eq!(attributes(&found), ["packages.x86_64-linux.app first.drv"]);
    let unlocked = format!("git+file://{}", repository.display());
    let (_, summary) = both(&host, &unlocked, "packages.*").await;
    let Err(DiscoverError::Flake { message }) = summary else { panic!("{summary:?}") };
    assert!(message.contains("unlocked flake reference"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_daemon_is_named() {
    let (host, flake) = host_with("N01");
    let mut settings = host.settings(CHILD, 1);
    settings.store_uri = "unix:///nonexistent/d.sock".to_owned();
    let pool = Pool::new(settings).expect("pool");
    let (_, summary) = discover(&pool, &flake, PACKAGES).await;
    let Err(DiscoverError::Spawn(error)) = summary else { panic!("{summary:?}") };
    let text = error.to_string();
    assert!(text.starts_with("evaluator not initialized: ") && text.contains("d.sock"), "{text}");
}

/// No fetching here: that step has tests of its own.
async fn as_it_is(asked: &Asked) -> Result<Locked, String> {
    assert_eq!(asked.overrides.len(), 0);
    Ok(Locked::as_it_is(asked.repository.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_speaks_json() {
    let (host, flake) = host_with("N01");
    let (folder, hash) = flake.split_once("?narHash=").expect("locked");
    let hash = hash.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    let folder = folder.trim_start_matches("path:");
    let locked = format!(
        r#"{{\"type\":\"path\",\"path\":\"{folder}\",\"narHash\":\"{hash}\",\"dir\":\".\"}}"#
    );
    let requests = format!(
        r#"{{"op":"plan","repository":"{flake}","wildcards":["packages.*.plain"]}}

{{"op":"list","repository":"{flake}","wildcards":["packages.x86_64-linux.*"],"only":["plain"]}}
{{"op":"list","repository":"path:/nonexistent","wildcards":["packages.x"]}}
{{"op":"fingerprint","repository":"{flake}"}}
{{"op":"fingerprint","repository":"path:/x"}}
{{"op":"checkpoint","repository":"{flake}"}}
{{"op":"fetch_input","locked":"{locked}"}}
{{"op":"fetch_input","locked":"{{}}"}}
{{"op":"shutdown"}}
{{"op":"list","repository":"{flake}","wildcards":["packages.x86_64-linux.plain"]}}"#
    );
    let mut output = Vec::new();
    let mut settings = host.settings(CHILD, 1);
    settings.eval_cache = Some(host.path().join("eval-caches"));
    gradient_pool::driver::run_lines(&requests, settings, &mut output, as_it_is)
        .await
        .expect("driver");
    let lines: Vec<serde_json::Value> = output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("json"))
        .collect();
    assert_eq!(lines.len(), 9, "{lines:#?}");
    assert_eq!(lines[0]["shards"][0]["pattern"], "packages.x86_64-linux.plain");
    assert_eq!(lines[1]["items"][0]["attr"], "packages.x86_64-linux.plain");
    assert!(lines[1]["items"][0]["drv_path"].as_str().expect("drv").ends_with("-plain.drv"));
    assert_eq!(lines[2]["kind"], "err");
    assert_eq!(lines[3]["kind"], "fingerprint_ok");
    assert_eq!(lines[3]["fingerprint"].as_str().map(str::len), Some(64));
    assert_eq!(
        (&lines[4]["kind"], lines[4]["fingerprint"].is_null()),
        (&"fingerprint_ok".into(), true)
    );
    assert_eq!(lines[5]["kind"], "checkpoint_ok", "{}", lines[5]);
    assert_eq!(lines[6]["kind"], "fetch_ok", "{}", lines[6]);
    let fetched = lines[6]["store_path"].as_str().expect("a path");
    assert!(fetched.ends_with("-source"), "{fetched}");
    assert!(host.real_store().join(fetched.trim_start_matches("/nix/store/")).exists());
    assert_eq!(lines[7]["kind"], "err", "{}", lines[7]);
    assert_eq!(lines[8]["items"][0]["attr"], "packages.x86_64-linux.plain");
    let broken =
        gradient_pool::driver::run_lines("{}", host.settings(CHILD, 1), &mut output, as_it_is)
            .await;
    assert!(broken.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_child_opens_a_flake_once() {
    let host = NixHost::start();
    let flake = |name: &str| {
        let text = format!(
            r#"{{ outputs = {{ self }}: builtins.warn "opened {name}" {{ packages.x86_64-linux.p = derivation {{
              name = "p"; system = "x86_64-linux"; builder = "/bin/sh"; }}; }}; }}"#
        );
        host.flake(name, &text)
    };
    let (one, two) = (flake("one"), flake("two"));
    let list = |flake: &str| {
        format!(r#"{{"op":"list","repository":"{flake}","wildcards":["packages.x86_64-linux.p"]}}"#)
    };
    let requests = [list(&one), list(&one), list(&two), list(&one)].join("\n");
    let mut output = Vec::new();
    let settings = host.settings(CHILD, 1);
    gradient_pool::driver::run_lines(&requests, settings, &mut output, as_it_is)
        .await
        .expect("driver");
    let opened: Vec<_> = String::from_utf8(output)
        .expect("text")
        .lines()
        .map(|line| {
            let response: serde_json::Value = serde_json::from_str(line).expect("json");
            assert_eq!(response["items"].as_array().map(Vec::len), Some(1), "{line}");
            response["warnings"][0].as_str().unwrap_or("still open").to_owned()
        })
        .collect();
    assert_eq!(
        opened,
        [
            "evaluation warning: opened one",
            "still open",
            "evaluation warning: opened two",
            "evaluation warning: opened one",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_evaluator_is_ended_by_the_time_limit_and_by_cancelling() {
    let host = NixHost::start();
    let text = r#"{ outputs = { self }: let
        fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2);
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
      in { packages.x86_64-linux = { quick = mk "quick"; slow = mk "n${toString (fib 60)}"; }; }; }"#;
    let flake = host.flake("slow", text);
    let mut settings = host.settings(CHILD, 2);
    settings.call_limit = std::time::Duration::from_secs(2);
    let pool = Pool::new(settings).expect("pool");
    let (found, _) = discover(&pool, &flake, PACKAGES).await;
    assert_eq!(attributes(&found), ["packages.x86_64-linux.quick quick.drv"]);
    assert_errors(&errors(&found), &[(".slow", "took too long: time limit of 2 s")]);

    let pool = Pool::new(host.settings(CHILD, 2)).expect("pool");
    let patterns: PatternSet = PACKAGES.parse().expect("pattern");
    let (sink, mut results) = tokio::sync::mpsc::channel(4);
    let wanted = Evaluation::of_flake(&flake, patterns);
    let evaluation = pool.discover(&wanted, sink);
    let first = tokio::select! {
        first = results.recv() => first,
        ended = evaluation => panic!("ended by itself: {ended:?}"),
    };
    assert!(matches!(first, Some(Found::Attribute { .. })));
    // The evaluation was dropped in the middle; the pool still works.
    let (quick, summary) = discover(&pool, &flake, "packages.x86_64-linux.quick").await;
    assert_eq!((quick.len(), summary.is_ok()), (1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lot_of_garbage_and_a_deep_stack_are_no_problem() {
    let host = NixHost::start();
    let text = r#"{ outputs = { self }: let
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
        churn = seed: builtins.foldl' (sum: n: sum + builtins.length (builtins.genList (i: i) n))
          seed (builtins.genList (n: n) 3000);
        deep = n: if n == 0 then 0 else 1 + deep (n - 1);
        nested = builtins.foldl' (inner: _: [ inner ]) [ ] (builtins.genList (n: n) 200000);
      in { packages.x86_64-linux = {
        churn0 = mk "c${toString (churn 0)}";
        churn1 = mk "c${toString (churn 1)}";
        deep = mk "d${toString (deep 4000)}";
        nested = mk (builtins.deepSeq nested "n");
        kept = mk "kept";
      }; }; }"#;
    let flake = host.flake("gc", text);
    let (found, summary) = both(&host, &flake, PACKAGES).await;
    assert_eq!(
        attributes(&found),
        [
            "packages.x86_64-linux.churn0 c4498500.drv",
            "packages.x86_64-linux.churn1 c4498501.drv",
            "packages.x86_64-linux.deep d4000.drv",
            "packages.x86_64-linux.kept kept.drv",
            "packages.x86_64-linux.nested n.drv",
        ]
    );
    assert_eq!(summary.expect("evaluated").crashes, 0);
}
