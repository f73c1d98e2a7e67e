//! Whatever comes out of a pipe is a message, an error or the end, never a panic; and what is read
//! as a message is written again as one that reads the same.
#![no_main]

use gradient_ipc::codec::{Message, read_payload};
use gradient_ipc::{Request, Response};
use libfuzzer_sys::fuzz_target;

fn again<M: Message + PartialEq + std::fmt::Debug>(payload: &[u8]) {
    let Ok(message) = M::from_payload(payload) else { return };
    let frame = message.to_frame().expect("what was read in a frame fits into one");
    let payload = read_payload(&mut frame.as_slice()).expect("a whole frame").expect("a frame");
    assert_eq!(M::from_payload(&payload).expect("our own frame"), message);
}

fuzz_target!(|data: &[u8]| {
    let mut pipe = data;
    while let Ok(Some(payload)) = read_payload(&mut pipe) {
        again::<Request>(&payload);
        again::<Response>(&payload);
    }
    again::<Request>(data);
    again::<Response>(data);
});
