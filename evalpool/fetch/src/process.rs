//! One run of a program: its answer within limits, and its end with all its children.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::{Instant, timeout_at};

/// Most bytes of an answer; more is a failure.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes that are kept of what a program says beside it, from the end.
const SAID_BYTES_MAX: usize = 64 << 10;
/// How long the end of a group may take.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `$0 "$@"` and ends as it does. Standard input is a pipe that nothing is written to: it ends
/// when this process is killed, and then the whole group is.
const WATCHED: &str = r#"
exec 3<&0 </dev/null
"$0" "$@" 3<&- &
program=$!
{ read -r nothing <&3; kill -KILL 0; } >/dev/null 2>&1 &
wait "$program"
status=$?
kill "$!" 2>/dev/null
exit "$status"
"#;
/// What a shell ends with when it cannot run a program.
const NOT_RUN: [i32; 2] = [126, 127];

/// What a program said before it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// The last [`SAID_BYTES_MAX`].
    pub(crate) stderr: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    Start(io::Error),
    Late,
    TooLarge,
}

/// The command below a shell that ends it with us.
fn watched(command: &Command) -> Command {
    let command = command.as_std();
    let mut watched = Command::new("/bin/sh");
    watched.args(["-c", WATCHED]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => watched.env(name, value),
            None => watched.env_remove(name),
        };
    }
    watched.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    watched.process_group(0).kill_on_drop(true);
    watched
}

/// Runs a program to its end. Dropped, or over a limit, it ends with its children, such as git and ssh.
pub(crate) async fn run(command: &Command, until: Instant) -> Result<Answer, NoAnswer> {
    let mut child = watched(command).spawn().map_err(NoAnswer::Start)?;
    // Taken away from the child: waiting for a child closes it. Closed, it ends the group.
    let stdin = child.stdin.take();
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(NoAnswer::Start(io::Error::other("it has no output")));
    };
    let answered = async {
        let (stdout, stderr) = tokio::try_join!(head(out), tail(err))?;
        let status = child.wait().await.map_err(NoAnswer::Start)?;
        Ok(Answer { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
    };
    let answer = timeout_at(until, answered).await.unwrap_or(Err(NoAnswer::Late));
    drop(stdin);
    match answer {
        Ok(answer) if answer.status.code().is_some_and(|code| NOT_RUN.contains(&code)) => {
            Err(NoAnswer::Start(io::Error::other(answer.stderr.trim().to_owned())))
        }
        Ok(answer) => Ok(answer),
        Err(error) => {
            let _ = tokio::time::timeout(REAP_TIMEOUT, child.wait()).await;
            Err(error)
        }
    }
}

async fn head(from: impl AsyncRead + Unpin) -> Result<Vec<u8>, NoAnswer> {
    let mut kept = Vec::new();
    from.take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut kept).await.map_err(NoAnswer::Start)?;
    if kept.len() > ANSWER_BYTES_MAX { Err(NoAnswer::TooLarge) } else { Ok(kept) }
}

/// Reads to the end and keeps the last [`SAID_BYTES_MAX`].
async fn tail(mut from: impl AsyncRead + Unpin) -> Result<Vec<u8>, NoAnswer> {
    let mut kept = Vec::new();
    while from.read_buf(&mut kept).await.map_err(NoAnswer::Start)? > 0 {
        if kept.len() > 2 * SAID_BYTES_MAX {
            kept.drain(..kept.len() - SAID_BYTES_MAX);
        }
    }
    kept.drain(..kept.len().saturating_sub(SAID_BYTES_MAX));
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, limit: Duration) -> Result<Answer, NoAnswer> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        run(&command, Instant::now() + limit).await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn answers_have_a_limit() {
        let script = "echo answer; yes | head -c 1000000 >&2; echo end >&2; exit 3";
        let said = shell(script, LONG).await.expect("it runs");
        assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(3), &b"answer\n"[..]));
        assert!(said.stderr.len() == SAID_BYTES_MAX && said.stderr.ends_with("y\nend\n"));
        assert!(matches!(shell("exec yes", LONG).await, Err(NoAnswer::TooLarge)));
    }

    /// A script whose child writes its number into a file and stays.
    fn with_child(folder: &std::path::Path) -> String {
        let file = folder.join("child").display().to_string();
        format!("sleep 600 & echo $! > {file}.new; mv {file}.new {file}; wait")
    }

    fn is_alive(child: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state.is_some_and(|state| state != 'Z')
    }

    async fn child_of(folder: &std::path::Path) -> i32 {
        let until = Instant::now() + LONG;
        loop {
            if let Ok(text) = std::fs::read_to_string(folder.join("child")) {
                return text.trim().parse().expect("a number");
            }
            assert!(Instant::now() < until, "the child did not start");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_dead(child: i32) {
        let until = Instant::now() + LONG;
        while is_alive(child) {
            assert!(Instant::now() < until, "the child still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn what_takes_too_long_ends_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let late = shell(&with_child(folder.path()), Duration::from_secs(1)).await;
        assert!(matches!(late, Err(NoAnswer::Late)));
        until_dead(child_of(folder.path()).await).await;
    }

    #[tokio::test]
    async fn what_is_dropped_ends_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = with_child(folder.path());
        let task = tokio::spawn(async move { shell(&script, LONG).await });
        let child = child_of(folder.path()).await;
        task.abort();
        until_dead(child).await;
    }

    #[tokio::test]
    async fn what_outlives_us_ends_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &with_child(folder.path())]);
        let mut running = watched(&command).spawn().expect("it runs");
        let child = child_of(folder.path()).await;
        drop(running.stdin.take());
        until_dead(child).await;
        let ended = tokio::time::timeout(LONG, running.wait()).await;
        assert!(!ended.expect("it ends").expect("it ends").success());
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_no_answer() {
        let missing = Command::new("/does/not/exist");
        let answer = run(&missing, Instant::now() + LONG).await;
        assert!(matches!(answer, Err(NoAnswer::Start(_))), "{answer:?}");
    }
}
