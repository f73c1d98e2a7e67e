//! The evaluator subprocess by itself: its greeting, its answers without Nix, its manners. No Nix
//! needed.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gradient_ipc::codec::{EVAL_IPC_VERSION, Message, read_payload, write_message};
use gradient_ipc::message::{BuildDone, List, Request, Response, Source, Start};
use gradient_ipc::shard::{Recursion, Shard};

struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Talk {
    fn begin() -> Talk {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gradient-eval-child"))
            .arg("--eval-subprocess")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("child");
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("stdout");
        let mut version = [0];
        stdout.read_exact(&mut version).expect("greeting");
        assert_eq!(version, [EVAL_IPC_VERSION]);
        Talk { child, stdin, stdout }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("open").write_all(bytes).expect("written");
    }

    fn ask(&mut self, request: &Request) -> Response {
        write_message(self.stdin.as_mut().expect("open"), request).expect("written");
        self.answer()
    }

    fn answer(&mut self) -> Response {
        let payload = read_payload(&mut self.stdout).expect("frame").expect("answer");
        Response::from_payload(&payload).expect("response")
    }

    fn proc_file(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
        std::fs::read_to_string(path).expect("proc file").trim().to_owned()
    }

    fn descriptor(&self, number: u32) -> String {
        let link = format!("/proc/{}/fd/{number}", self.child.id());
        std::fs::read_link(link).expect("descriptor").display().to_string()
    }
}

fn message(response: Response) -> String {
    match response {
        Response::Err(failure) => failure.message,
        other => panic!("{other:?}"),
    }
}

fn list() -> Request {
    let shard = Shard::whole(Vec::new(), Recursion::Pattern);
    Request::List(List { source: Source::flake("path:/x"), shard, excludes: Vec::new() })
}

#[test]
fn without_nix_it_stays_and_says_so_to_every_request() {
    let mut talk = Talk::begin();
    assert_eq!(message(talk.ask(&list())), "evaluator not initialized");
    let start = Request::Start(Start {
        nix_lib_dir: Some("/nonexistent/nix".into()),
        store_uri: "dummy".into(),
        show_trace: false,
        nonce: "secret".into(),
    });
    let failed = message(talk.ask(&start));
    if !failed.contains("/nonexistent/nix") {
        // The loader's path has a Nix; then the store is what fails.
        assert!(!failed.is_empty());
    }
    let again = message(talk.ask(&list()));
    assert!(again.starts_with("evaluator not initialized: "), "{again}");
    assert_eq!(talk.ask(&Request::Ping), Response::Pong);
}

#[test]
fn a_malformed_request_is_an_answer_and_not_the_end() {
    let mut talk = Talk::begin();
    talk.send(&8_u32.to_le_bytes());
    talk.send(&[0xff; 8]);
    let text = message(talk.answer());
    assert!(text.starts_with("malformed request"), "{text}");
    assert_eq!(talk.ask(&Request::Ping), Response::Pong);
}

#[test]
fn an_answer_that_nobody_waits_for_is_ignored() {
    let mut talk = Talk::begin();
    let frame = Request::BuildDone(BuildDone { error: None }).to_frame().expect("frame");
    talk.send(&frame);
    assert_eq!(talk.ask(&Request::Ping), Response::Pong);
}

#[test]
fn it_ends_by_shutdown_by_the_end_of_input_and_by_a_torn_frame() {
    let mut talk = Talk::begin();
    talk.send(&Request::Shutdown.to_frame().expect("frame"));
    assert_eq!(talk.child.wait().expect("ended").code(), Some(0));
    let mut talk = Talk::begin();
    talk.stdin = None;
    assert_eq!(talk.child.wait().expect("ended").code(), Some(0));
    let mut talk = Talk::begin();
    talk.send(&[1, 0]);
    talk.stdin = None;
    assert_eq!(talk.child.wait().expect("ended").code(), Some(2));
    let mut talk = Talk::begin();
    talk.send(&u32::MAX.to_le_bytes());
    assert_eq!(talk.child.wait().expect("ended").code(), Some(2));
}

#[test]
fn it_keeps_its_pipes_to_itself_and_goes_first_when_memory_is_short() {
    let mut talk = Talk::begin();
    assert_eq!(talk.ask(&Request::Ping), Response::Pong);
    assert_eq!(talk.descriptor(0), "/dev/null");
    assert_eq!(talk.descriptor(1), talk.descriptor(2));
    assert_eq!(talk.proc_file("oom_score_adj"), "600");
    let limits = talk.proc_file("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("core");
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
}

#[test]
fn it_ends_with_the_thread_that_started_it() {
    let starter = std::thread::spawn(Talk::begin);
    let mut talk = starter.join().expect("started");
    assert_eq!(talk.child.wait().expect("ended").signal(), Some(9));
}
