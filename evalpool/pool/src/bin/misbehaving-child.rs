//! A subprocess for tests that speaks the frames without any Nix and misbehaves as the name of its
//! program says: `crash`, `crash-once`, `hang`, `grow`, `torn`, `junk`, `wrong-version`, `silent`,
//! `chatty`, `huge`, `no-nix`, `dies-idle`, `stops`, `imports`. Its flake holds `packages.x86_64-linux.{p00..p15}`;
//! a name that misbehaves is `p09`.

use std::fs::File;
use std::io::{Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use gradient_domain::StorePath;
use gradient_domain::pattern::Segment;
use gradient_ipc::codec::{EVAL_IPC_VERSION, FrameError, Message, read_payload, write_message};
use gradient_ipc::marks::Marks;
use gradient_ipc::message::{
    Failure, FingerprintOk, Item, List, ListOk, NeedsBuild, PlanOk, Request, Response, Started,
};
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::tree::Job;

const POISON: &str = "p09";
const GROW_MAX: usize = 192 * 1024 * 1024;

fn main() -> Result<(), FrameError> {
    let program = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let mode = program.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    match mode.as_str() {
        "silent" => wait_for_the_end(),
        "chatty" => stdout().write_all(b"Welcome to the wrapper!\n")?,
        "wrong-version" => stdout().write_all(&[EVAL_IPC_VERSION + 1])?,
        _ => stdout().write_all(&[EVAL_IPC_VERSION])?,
    }
    stdout().flush()?;
    let mut requests = 0;
    let mut marks = Marks::new("");
    while let Some(payload) = read_payload(&mut stdin())? {
        requests += 1;
        let request = Request::from_payload(&payload)?;
        if let Request::Start(start) = &request {
            marks = Marks::new(&start.nonce);
        }
        let response = match request {
            Request::Start(_) if mode == "no-nix" => {
                Response::Err(Failure { message: "no libnixutilc".into() })
            }
            Request::Start(_) => Response::Started(Started { nix_version: "0".into() }),
            Request::Ping => Response::Pong,
            Request::Plan(_) => Response::PlanOk(PlanOk { shards: vec![shard()], errors: vec![] }),
            Request::List(list) => list_ok(&list, &mode, &program)?,
            Request::Fingerprint(_) => Response::FingerprintOk(FingerprintOk { fingerprint: None }),
            Request::Checkpoint(_) => Response::CheckpointOk,
            Request::FetchInput(_) => Response::Err(Failure { message: "no fetcher".into() }),
            Request::BuildDone(_) => continue,
            Request::Shutdown if mode == "stops" => wait_for_the_end(),
            Request::Shutdown => return Ok(()),
        };
        eprint!("{}", marks.done(requests));
        write_message(&mut stdout(), &response)?;
        if mode == "dies-idle" && matches!(response, Response::PlanOk(_)) {
            std::process::abort();
        }
    }
    Ok(())
}

fn shard() -> Shard {
    let name = |text: &str| Segment::Name(text.to_owned());
    Shard {
        pattern: vec![name("packages"), name("x86_64-linux"), Segment::Star],
        only: Some((0..16).map(|n| format!("p{n:02}")).collect()),
        recursion: Recursion::Pattern,
    }
}

fn list_ok(list: &List, mode: &str, program: &Path) -> Result<Response, FrameError> {
    let names = list.shard.only.clone().unwrap_or_default();
    if names.iter().any(|name| name == POISON) {
        misbehave(mode, program)?;
    }
    let mut refused = None;
    if mode == "imports" && names.iter().any(|name| name == POISON) {
        refused = import()?;
    }
    let drv = |name: &str| StorePath::from_base_name(&format!("{}-{name}.drv", "0".repeat(32)));
    let item = |name: &String| Item {
        attr: list.shard.prefix().child(name),
        result: drv(name)
            .map(|drv_path| Job { drv_path, extra: None })
            .map_err(|error| error.to_string()),
    };
    let mut items: Vec<Item> = names.iter().map(item).collect();
    if let Some(refused) = refused {
        items.retain(|item| item.attr.0.last().is_none_or(|name| name != POISON));
        let attr = list.shard.prefix().child(POISON);
        items.push(Item { attr, result: Err(refused) });
    }
    Ok(Response::ListOk(ListOk { items, ..ListOk::default() }))
}

/// Asks for a build and waits for the answer, as an import does; gives its error.
fn import() -> Result<Option<String>, FrameError> {
    let derived_paths = vec![format!("/nix/store/{}-x.drv^out", "0".repeat(32))];
    write_message(&mut stdout(), &Response::NeedsBuild(NeedsBuild { derived_paths }))?;
    match read_payload(&mut stdin())?.as_deref().map(Request::from_payload).transpose()? {
        Some(Request::BuildDone(done)) => Ok(done.error),
        _ => std::process::exit(4),
    }
}

fn misbehave(mode: &str, program: &Path) -> Result<(), FrameError> {
    match mode {
        "crash" => std::process::abort(),
        "crash-once" => {
            let mark = program.with_extension("mark");
            if File::create_new(&mark).is_ok() {
                std::process::abort();
            }
        }
        "hang" => wait_for_the_end(),
        "grow" => {
            let mut heap = Vec::new();
            while heap.len() * 4096 < GROW_MAX {
                heap.push(vec![1_u8; 4096]);
            }
            std::hint::black_box(&heap);
            wait_for_the_end();
        }
        "torn" => {
            stdout().write_all(&100_u32.to_le_bytes())?;
            stdout().write_all(b"half a frame")?;
            stdout().flush()?;
            std::process::exit(3);
        }
        "junk" => {
            stdout().write_all(&16_u32.to_le_bytes())?;
            stdout().write_all(&[0xff; 16])?;
            stdout().flush()?;
        }
        "huge" => {
            stdout().write_all(&u32::MAX.to_le_bytes())?;
            stdout().flush()?;
        }
        _ => {}
    }
    Ok(())
}

/// Does nothing until it is killed; the pipe that it waits on never has bytes for it to see.
fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
        let _ = std::io::empty().read(&mut []);
    }
}
