//! Deeds with memory, and calls with more data than anybody should hand over.

use core::arch::wasm32::{memory_grow, memory_size};

use serde_json::Value;

use crate::bindings::wasmcron::job::types::{Failure, Outcome};
use crate::{done, text, then};

const PAGE: usize = 64 << 10;

/// Grows by a mebibyte until the host refuses, then does as `then` says.
pub(crate) fn grow_until_refused(params: &Value) -> Result<Outcome, Failure> {
    while memory_grow::<0>(16) != usize::MAX {}
    match text(params, "then") {
        "" => done(format!("{} pages", memory_size::<0>())),
        _ => then(params),
    }
}

/// Allocates until the allocator gives up, which aborts.
pub(crate) fn allocate_until_abort() -> Result<Outcome, Failure> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    loop {
        kept.push(vec![1; 1 << 20]);
        std::hint::black_box(&kept);
    }
}

/// Recurses for ever if `depth` is 0.
#[allow(
    unconditional_recursion,
    clippy::only_used_in_recursion,
    reason = "the deed"
)]
pub(crate) fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == 1 {
        return frame[0];
    }
    recurse(depth.wrapping_sub(1)) + std::hint::black_box(frame)[63]
}

#[link(wasm_import_module = "wasmcron:job/log@0.1.0")]
unsafe extern "C" {
    #[link_name = "log"]
    fn raw_log(level: i32, text: usize, text_len: usize, fields: usize, fields_len: usize);
}

/// Pages that nobody has touched yet: their zeros cost no memory.
fn fresh(bytes: usize) -> Result<usize, Failure> {
    let pages = bytes.div_ceil(PAGE);
    match memory_grow::<0>(pages) {
        usize::MAX => Err(Failure::Fatal(
            "the memory limit is too low for this test".to_owned(),
        )),
        before => Ok(before * PAGE),
    }
}

/// Logs a text of `megabytes`.
pub(crate) fn log_huge(megabytes: u32) -> Result<Outcome, Failure> {
    let bytes = (megabytes as usize) << 20;
    let at = fresh(bytes)?;
    unsafe { raw_log(2, at, bytes, 0, 0) };
    done("logged")
}

/// Logs a line with `count` fields, all empty.
pub(crate) fn log_fields(count: u32) -> Result<Outcome, Failure> {
    let at = fresh(count as usize * 16)?;
    unsafe { raw_log(2, 0, 0, at, count as usize) };
    done("logged")
}

/// Logs bytes that are no text.
pub(crate) fn log_broken_text() -> Result<Outcome, Failure> {
    let bytes = [b'a', 0xff, 0xfe];
    unsafe { raw_log(2, bytes.as_ptr() as usize, bytes.len(), 0, 0) };
    done("logged")
}
