//! The `wasmcron` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    wasmcron_host::main()
}
