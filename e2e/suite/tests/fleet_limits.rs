//! The limits of a worker's evaluators: one attribute beyond one is an error that names it, and its
//! neighbours are found.

use gradient_suite::model::{self, Evaluation, Outcome};
use gradient_suite::{Cluster, Flake};

/// Evaluates `bad` between good ones by a worker with a limit; what is said of it.
#[track_caller]
fn said_of(bad: &str, limit: (&'static str, &str)) -> String {
    let mut cluster = Cluster::prepare(1);
    cluster.set(limit.0, limit.1);
    cluster.up();
    let body = format!(
        r#"packages.x86_64-linux = {{
        a-good = mk "a-good" "echo a > $out";
        bad = mk "bad-${{toString ({bad})}}" "exit 1";
        z-good = mk "z-good" "echo z > $out";
      }};"#
    );
    let flake = Flake::of("", &body);
    let _ = cluster.submit(&flake.reference()).end().with_code(1);
    let evaluation = Evaluation::newest(&cluster);
    let wanted = [
        ("a-good", Outcome::Completed),
        ("bad", Outcome::EvaluationError),
        ("z-good", Outcome::Completed),
    ];
    assert_eq!(evaluation.outcomes(), model::packages(&wanted));
    assert_eq!(evaluation.summary["hand_outs"], 1, "nothing is tried again for it");
    let text = evaluation.messages[0]["text"].as_str().expect("a text").to_owned();
    cluster.check_everything();
    cluster.finish();
    text
}

#[test]
fn an_attribute_that_takes_too_long_is_an_error() {
    let endless = "let fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2); in fib 60";
    let text = said_of(endless, ("GRADIENT_WORKER_EVAL_CALL_TIMEOUT_SECS", "2"));
    assert!(text.contains("took too long: time limit of 2 s"), "{text}");
}

#[test]
fn an_attribute_that_takes_too_much_memory_is_an_error() {
    let bomb = r#"builtins.deepSeq (builtins.genList
      (n: { inherit n; s = builtins.hashString "sha512" (toString n); }) 20000000) 1"#;
    let limit = (300 << 20).to_string();
    let text = said_of(bomb, ("GRADIENT_WORKER_EVAL_KILL_RSS", &limit));
    for words in ["signal: 9 (SIGKILL)", "one evaluator may have 300 MiB", "peak memory "] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
}
