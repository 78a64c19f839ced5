//! The Lua scripts: loaded from their files, put together with the parts they use, called by hash.

use std::collections::HashMap;

use redis::Value;

use super::connect::{Connection, RedisOptions};
use super::errors;
use super::keys::Keys;
use crate::error::Result;

/// Parts that several scripts share, in the order they must stand in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Leading,
    Entries,
    Run,
    Ending,
    Attempts,
    Checkpoint,
    State,
    Decisions,
    Changes,
}

impl Part {
    fn text(self) -> &'static str {
        match self {
            Part::Leading => include_str!("lua/parts/leading.lua"),
            Part::Entries => include_str!("lua/parts/entries.lua"),
            Part::Run => include_str!("lua/parts/run.lua"),
            Part::Ending => include_str!("lua/parts/ending.lua"),
            Part::Attempts => include_str!("lua/parts/attempts.lua"),
            Part::Checkpoint => include_str!("lua/parts/checkpoint.lua"),
            Part::State => include_str!("lua/parts/state.lua"),
            Part::Decisions => include_str!("lua/parts/decisions.lua"),
            Part::Changes => include_str!("lua/parts/changes.lua"),
        }
    }
}

/// One verb, one file.
macro_rules! verbs {
    ($($verb:ident: $file:literal [$($part:ident),*]),* $(,)?) => {
        /// A verb of the store; its name is that of its Lua file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Verb { $($verb),* }

        impl Verb {
            const ALL: &'static [Verb] = &[$(Verb::$verb),*];

            pub(super) fn name(self) -> &'static str {
                match self { $(Verb::$verb => $file),* }
            }

            fn parts(self) -> &'static [Part] {
                match self { $(Verb::$verb => &[$(Part::$part),*]),* }
            }

            fn body(self) -> &'static str {
                match self { $(Verb::$verb => include_str!(concat!("lua/", $file, ".lua"))),* }
            }
        }
    };
}

verbs! {
    Campaign: "campaign" [],
    Renew: "renew" [Leading],
    Resign: "resign" [Leading],
    Register: "register" [],
    Report: "report" [],
    Heartbeat: "heartbeat" [],
    Leave: "leave" [],
    Drain: "drain" [],
    Forget: "forget" [Leading],
    Changes: "changes" [],
    Open: "open" [Leading, Changes],
    Publish: "publish" [Leading, Entries, Decisions],
    DueDelayed: "due_delayed" [],
    Promote: "promote" [Leading, Entries],
    ExplainDelayed: "explain_delayed" [Leading, Entries],
    Submit: "submit" [Entries, Run],
    Pause: "pause" [Changes],
    Resume: "resume" [Leading, Changes],
    Release: "release" [Changes],
    SetWaiting: "set_waiting" [Leading],
    Retire: "retire" [Leading, Changes],
    Discard: "discard" [],
    Take: "take" [],
    Reject: "reject" [],
    Claim: "claim" [Entries, Run, Ending, Checkpoint],
    Skip: "skip" [Entries, Run, Ending],
    Park: "park" [Entries, Run],
    HandBack: "hand_back" [Entries, Run, Ending, Attempts],
    Extend: "extend" [Entries],
    SaveCheckpoint: "save_checkpoint" [Entries],
    SetState: "set_state" [Entries, State],
    AppendLog: "append_log" [Entries],
    ReportProgress: "report_progress" [Entries],
    Finish: "finish" [Entries, Run, Ending, Attempts, State],
    Cancel: "cancel" [Entries, Run, Ending],
    Locks: "locks" [],
    Republish: "republish" [Leading, Entries, Run, Ending, Attempts],
    Lose: "lose" [Leading, Entries, Run, Ending, Attempts, Changes],
    GiveUp: "give_up" [Leading, Entries, Run, Ending],
    Bury: "bury" [Leading, Entries, Run, Ending],
    Checkpoint: "checkpoint" [Checkpoint],
    Checkpoints: "checkpoints" [],
    ClearCheckpoint: "clear_checkpoint" [],
    RewindCheckpoint: "rewind_checkpoint" [],
}

/// Every verb by the hash of its script, which is all that a server's slow log, or a listener between it and
/// a pod, shows of a call.
#[must_use]
pub fn verbs(options: &RedisOptions) -> HashMap<String, &'static str> {
    let scripts = Scripts::new(options.execution_log_max);
    let hashes = scripts.0.into_iter().map(|script| script.hash);
    hashes
        .zip(Verb::ALL.iter().map(|verb| verb.name()))
        .collect()
}

struct Script {
    text: String,
    hash: String,
}

/// All scripts with their hashes, made once for a store.
pub(super) struct Scripts(Vec<Script>);

impl Scripts {
    /// `log_max` is about how many entries the execution log keeps.
    pub(super) fn new(log_max: u32) -> Scripts {
        let make = |verb: &Verb| {
            let mut text = format!("local LOG_MAX = {log_max}\n");
            text.push_str(include_str!("lua/parts/base.lua"));
            for part in verb.parts() {
                text.push_str(part.text());
            }
            text.push_str(verb.body());
            let hash = redis::Script::new(&text).get_hash().to_owned();
            Script { text, hash }
        };
        Scripts(Verb::ALL.iter().map(make).collect())
    }

    fn get(&self, verb: Verb) -> Option<&Script> {
        self.0.get(verb as usize)
    }

    /// For callers with a connection of their own.
    pub(super) fn hash_and_text(&self, verb: Verb) -> (&str, &str) {
        self.get(verb)
            .map_or(("", ""), |script| (&script.hash, &script.text))
    }
}

/// A call of a verb.
pub(super) struct Call {
    pub(super) verb: Verb,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn new(verb: Verb, keys: Vec<String>) -> Call {
        Call {
            verb,
            keys,
            args: Vec::new(),
        }
    }

    pub(super) fn key(mut self, key: String) -> Call {
        self.keys.push(key);
        self
    }

    pub(super) fn arg(mut self, arg: impl ToArg) -> Call {
        self.args.push(arg.to_arg());
        self
    }

    /// A leader's identity, the first three arguments of its verbs.
    pub(super) fn term(self, term: &crate::leadership::TermRef) -> Call {
        self.pod(&term.pod).arg(term.term.0)
    }

    /// A pod's identity.
    pub(super) fn pod(self, pod: &wasmcron_core::ids::PodRef) -> Call {
        self.arg(pod.address.as_str()).arg(pod.session.as_str())
    }

    pub(super) fn push_key(&mut self, key: String) {
        self.keys.push(key);
    }

    pub(super) fn push(&mut self, arg: impl ToArg) {
        self.args.push(arg.to_arg());
    }

    fn command(&self, how: &str, script: &str) -> redis::Cmd {
        let mut cmd = redis::cmd(how);
        cmd.arg(script)
            .arg(self.keys.len())
            .arg(&self.keys)
            .arg(&self.args);
        cmd
    }

    /// Runs it. Whatever script the server forgot is sent along again.
    pub(super) async fn run(
        &self,
        scripts: &Scripts,
        connection: &Connection,
        keys: &Keys,
    ) -> Result<Value> {
        let Some(script) = scripts.get(self.verb) else {
            return Err(errors::broken(self.verb.name(), "no such script"));
        };
        let by_hash = connection
            .send(&self.command("EVALSHA", &script.hash))
            .await;
        let answer = match by_hash {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                connection.send(&self.command("EVAL", &script.text)).await
            }
            answer => answer,
        };
        match answer {
            Ok(value) => Ok(value),
            Err(error) => {
                let mapped = errors::map(self.verb.name(), &error);
                Err(errors::name_wrong_key(mapped, connection, keys, &self.keys).await)
            }
        }
    }
}

/// What can stand in ARGV. Durations become whole milliseconds, at least one.
pub(super) trait ToArg {
    fn to_arg(&self) -> Vec<u8>;
}

impl ToArg for &str {
    fn to_arg(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl ToArg for String {
    fn to_arg(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl ToArg for &[u8] {
    fn to_arg(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl ToArg for u64 {
    fn to_arg(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl ToArg for u32 {
    fn to_arg(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl ToArg for usize {
    fn to_arg(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl ToArg for bool {
    fn to_arg(&self) -> Vec<u8> {
        if *self { b"1".to_vec() } else { b"0".to_vec() }
    }
}

impl ToArg for wasmcron_core::time::Timestamp {
    fn to_arg(&self) -> Vec<u8> {
        self.as_millis().to_string().into_bytes()
    }
}

/// The longest time the scripts calculate with: a hundred years.
const LONGEST_MS: i64 = 100 * 366 * 86_400_000;

/// A length of time for PX and friends, where zero is an error.
pub(super) fn px(duration: std::time::Duration) -> u64 {
    delay(duration).max(1)
}

/// A length of time that may be zero.
pub(super) fn delay(duration: std::time::Duration) -> u64 {
    u64::try_from(wasmcron_core::time::millis(duration).min(LONGEST_MS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_declares_its_contract_and_stays_short() {
        for verb in Verb::ALL {
            let body = verb.body();
            assert!(body.lines().count() < 60, "{} is too long", verb.name());
            assert!(body.starts_with("-- "), "{} lacks its promise", verb.name());
            for word in ["-- KEYS ", "-- Answers "] {
                assert!(body.contains(word), "{} lacks {word}", verb.name());
            }
            for word in ["unpack(", "KEYS[1] ..", "cjson"] {
                assert!(!body.contains(word), "{} uses {word}", verb.name());
            }
        }
    }

    #[test]
    fn parts_stay_short() {
        let parts = Verb::ALL.iter().flat_map(|verb| verb.parts());
        for text in parts.map(|part| part.text()) {
            assert!(
                text.lines().count() < 60,
                "{}",
                text.lines().next().unwrap_or("")
            );
        }
    }

    #[test]
    fn times_are_never_zero_where_the_server_forbids_it() {
        assert_eq!(px(std::time::Duration::ZERO), 1);
        assert_eq!(px(std::time::Duration::from_micros(1500)), 1);
        assert_eq!(delay(std::time::Duration::ZERO), 0);
        assert!(px(std::time::Duration::MAX) < 4_000_000_000_000);
    }
}
