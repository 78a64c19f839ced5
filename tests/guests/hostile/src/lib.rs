//! A plugin that misbehaves on demand. It is written against the bare contract, without the SDK, so
//! that it can do what the SDK would prevent. The parameter `do` names the deed, other parameters are
//! its numbers and texts; what the guest saw of the host comes back as the summary.

#![cfg(target_family = "wasm")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    unsafe_code,
    missing_docs,
    reason = "misbehaving is what it is for"
)]

mod http;
mod memory;

use serde_json::Value;

mod bindings {
    #![allow(
        clippy::all,
        missing_docs,
        unreachable_pub,
        unsafe_code,
        reason = "generated"
    )]
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "wasmcron:job/migrating-job",
        generate_all,
    });
}

use bindings::exports::wasmcron::job::{handler, migrate};
use bindings::wasmcron::job::types::{Call, Failure, Metadata, Outcome, RetryFailure, Want};
use bindings::wasmcron::job::{checkpoint, control, log, progress, secrets, state};

struct Hostile;
bindings::export!(Hostile with_types_in bindings);

type Result<T = Outcome> = std::result::Result<T, Failure>;

fn done(text: impl Into<String>) -> Result {
    Ok(Outcome::Done(text.into()))
}

/// A parameter that is a number.
fn number(params: &Value, key: &str) -> u32 {
    u32::try_from(params[key].as_u64().unwrap_or(0)).unwrap_or(u32::MAX)
}

/// A parameter that is a text.
fn text<'a>(params: &'a Value, key: &str) -> &'a str {
    params[key].as_str().unwrap_or_default()
}

impl handler::Guest for Hostile {
    fn describe() -> Metadata {
        Metadata {
            name: "hostile".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "Misbehaves on demand".to_owned(),
            parameter_schema: r#"{
                "type": "object",
                "properties": { "do": { "type": "string" }, "count": { "type": "integer", "minimum": 0 } },
                "required": ["do"]
            }"#
            .to_owned(),
            checkpoint_schema: 3,
            wants: vec![Want::Http("param:url".to_owned()), Want::Secret("token".to_owned())],
        }
    }

    fn run(call: Call) -> Result {
        let params: Value = serde_json::from_str(&call.parameters)
            .map_err(|error| Failure::Fatal(error.to_string()))?;
        act(&call, &params)
    }
}

fn act(call: &Call, params: &Value) -> Result {
    let count = number(params, "count");
    match text(params, "do") {
        "ok" => done("ok"),
        "call" => done(format!("{call:?}")),
        "yield" => Ok(Outcome::Yielded),
        "fatal" => Err(Failure::Fatal(text(params, "text").to_owned())),
        "cancelled" => Err(Failure::Cancelled),
        "retry" => Err(Failure::Retry(RetryFailure {
            message: text(params, "text").to_owned(),
            after: Some(count),
        })),
        "spin" => spin(),
        "sleep" => {
            std::thread::sleep(std::time::Duration::from_millis(count.into()));
            done("slept")
        }
        "wait-stop" => {
            control::subscribe().block();
            done(format!("{:?}", control::should_stop()))
        }
        "ignore-stop" => loop {
            std::hint::black_box(control::should_stop());
        },
        "trap" => core::arch::wasm32::unreachable(),
        "panic" => panic!("{}", text(params, "text")),
        "exit" => std::process::exit(7),
        "grow" => memory::grow_until_refused(params),
        "allocate" => memory::allocate_until_abort(),
        "recurse" => done(memory::recurse(u64::from(count)).to_string()),
        "chatty" => chatty(params),
        "env" => done(format!("{:?}", std::env::vars().collect::<Vec<_>>())),
        "args" => done(format!("{:?}", std::env::args().collect::<Vec<_>>())),
        "read-file" => done(format!("{:?}", std::fs::read(text(params, "path")))),
        "tcp" => done(format!(
            "{:?}",
            std::net::TcpStream::connect(text(params, "to"))
        )),
        "udp" => done(format!("{:?}", std::net::UdpSocket::bind("0.0.0.0:0"))),
        "http" => http::requests(params),
        "leak-requests" => http::leak(),
        "leak-pollables" => loop {
            std::mem::forget(control::subscribe());
        },
        "secret" => done(format!("{:?}", secrets::get(text(params, "name")))),
        other => act_on_desks(other, params),
    }
}

/// Deeds that concern log, checkpoint, state and progress.
fn act_on_desks(deed: &str, params: &Value) -> Result {
    let count = number(params, "count");
    match deed {
        "log" => {
            let said = text(params, "text");
            log::log(
                log::Level::Info,
                said,
                &[("field".to_owned(), said.to_owned())],
            );
            done("logged")
        }
        "log-flood" => {
            for line in 0..count {
                log::log(log::Level::Info, &format!("line {line}"), &[]);
            }
            done("flooded")
        }
        "log-huge" => memory::log_huge(count),
        "log-fields" => memory::log_fields(count),
        "log-broken-text" => memory::log_broken_text(),
        "checkpoint" => done(format!("{:?}", checkpoint::save(&vec![7; count as usize]))),
        "save" => {
            for n in 1..=count {
                if let Err(error) = checkpoint::save(&n.to_le_bytes()) {
                    return Err(Failure::Fatal(format!("{error:?}")));
                }
            }
            done("saved")
        }
        "save-until-stop" => {
            let mut n: u32 = 0;
            while control::should_stop().is_none() {
                n += 1;
                if let Err(error) = checkpoint::save(&n.to_le_bytes()) {
                    return Err(Failure::Fatal(format!("{error:?}")));
                }
            }
            Ok(Outcome::Yielded)
        }
        "load" => done(format!("{:?}", checkpoint::load())),
        "save-and-load" => {
            let saved = checkpoint::save(b"mine");
            done(format!("{saved:?} {:?}", checkpoint::load()))
        }
        "offer" => {
            for n in 1..=count {
                checkpoint::offer(&n.to_le_bytes());
            }
            then(params)
        }
        "offer-large" => {
            checkpoint::offer(&vec![7; count as usize]);
            then(params)
        }
        "state" => script(params),
        "progress" => {
            for n in 1..=count {
                progress::report(n.into(), Some(count.into()), "step");
            }
            progress::report(f64::NAN, None, "never shown");
            done("reported")
        }
        other => Err(Failure::Fatal(format!("unknown deed {other:?}"))),
    }
}

/// What happens after something else: the deed in `then`.
fn then(params: &Value) -> Result {
    match text(params, "then") {
        "yield" => Ok(Outcome::Yielded),
        "fatal" => Err(Failure::Fatal("as asked".to_owned())),
        "panic" => panic!("as asked"),
        "abort" => std::process::abort(),
        "spin" => spin(),
        "wait" => {
            control::subscribe().block();
            Ok(Outcome::Yielded)
        }
        _ => done("done"),
    }
}

fn spin() -> ! {
    loop {
        std::hint::black_box(0);
    }
}

/// `count` kilobytes of complete lines on standard error, then a panic.
fn chatty(params: &Value) -> Result {
    let line = "x".repeat(1023);
    for _ in 0..number(params, "count") {
        eprintln!("{line}");
    }
    println!("standard output\twith \u{1b}[31mcolour");
    print!("an unfinished line");
    let _ = std::io::Write::flush(&mut std::io::stdout());
    then(params)
}

/// Performs `[["set", key, value, "now"], ["get", key], …]` and answers with all results.
fn script(params: &Value) -> Result {
    let mut results = Vec::new();
    for step in params["script"].as_array().into_iter().flatten() {
        let word = |index: usize| step[index].as_str().unwrap_or_default();
        let when = |index| match word(index) {
            "now" => state::When::Now,
            _ => state::When::OnSuccess,
        };
        results.push(match word(0) {
            "set" => format!("{:?}", state::set(word(1), word(2).as_bytes(), when(3))),
            "delete" => format!("{:?}", state::delete(word(1), when(2))),
            _ => format!(
                "{:?}",
                state::get(word(1))
                    .map(|value| value.map(|v| String::from_utf8_lossy(&v).into_owned()))
            ),
        });
    }
    match text(params, "then") {
        "" => done(results.join("; ")),
        _ => then(params),
    }
}

impl migrate::Guest for Hostile {
    fn checkpoint(from_schema: u32, mut data: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
        match from_schema {
            1 => {
                data.push(b'!');
                Ok(data)
            }
            7 => panic!("no idea of schema 7"),
            8 => spin(),
            9 => Ok(vec![0; 64 << 20]),
            other => Err(format!("schema {other} is too old")),
        }
    }
}

/// Runs while the component is instantiated; misbehaves if the variable is granted.
extern "C" fn at_start() {
    if std::env::var_os("SPIN_AT_START").is_some() {
        spin();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
