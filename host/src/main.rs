//! wasmcron
fn main() {}
