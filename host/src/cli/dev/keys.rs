//! Keys of the terminal: each runs a job.

use std::io::{self, IsTerminal as _, Read as _};

use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::sync::mpsc;

/// Keys of jobs, in the order of their names. `l` and `q` have other uses.
const JOB_KEYS: &str = "123456789abcdefghijkmnoprstuvwxyz";
/// Keys that wait while one is acted on.
const WAITING: usize = 16;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A run of the job at this place in the list.
    Run(usize),
    /// The list of jobs.
    List,
    /// The end.
    Quit,
    /// Nothing known.
    Nothing,
}

/// What a key asks for.
pub fn asked(key: u8) -> Asked {
    match char::from(key) {
        'l' | '?' | '\n' | '\r' => Asked::List,
        // Where Ctrl-C is no signal, it is this key.
        'q' | '\u{3}' => Asked::Quit,
        key => JOB_KEYS.find(key).map_or(Asked::Nothing, Asked::Run),
    }
}

/// The key of the job at this place in the list; none after the last key.
pub fn key_of(place: usize) -> Option<char> {
    JOB_KEYS.chars().nth(place)
}

/// The terminal gives each key at once and shows none, until this is dropped.
pub struct Keyboard {
    before: Termios,
}

impl Keyboard {
    /// Takes the keyboard, if standard input is a terminal and this process is in front.
    pub fn take() -> Option<Keyboard> {
        let stdin = io::stdin();
        // A process behind would be stopped for changing the terminal.
        if !stdin.is_terminal() || tcgetpgrp(&stdin).ok()? != getpgrp() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut each_key = before.clone();
        // Ctrl-C stays a signal. What ends or stops the process without asking it would leave the
        // terminal like this.
        each_key.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        each_key.special_codes[SpecialCodeIndex::VMIN] = 1;
        each_key.special_codes[SpecialCodeIndex::VTIME] = 0;
        each_key.special_codes[SpecialCodeIndex::VQUIT] = 0;
        each_key.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &each_key).ok()?;
        Some(Keyboard { before })
    }

    /// The keys that are typed from now on.
    pub fn listen(&self) -> mpsc::Receiver<u8> {
        let (typed, keys) = mpsc::channel(WAITING);
        // Reading cannot be called off: the thread ends with the process.
        std::thread::spawn(move || {
            for key in io::stdin().lock().bytes() {
                let Ok(key) = key else { return };
                if typed.blocking_send(key).is_err() {
                    return;
                }
            }
        });
        keys
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // A terminal that is gone needs no modes.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Ends the pod as Ctrl-C does.
pub fn interrupt() {
    // A process can always signal itself.
    let _ = kill_process(getpid(), Signal::INT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_key_runs_its_job_and_no_other_thing() {
        for (place, key) in JOB_KEYS.bytes().enumerate() {
            assert_eq!(asked(key), Asked::Run(place));
            assert_eq!(key_of(place), Some(char::from(key)));
        }
        assert_eq!(key_of(JOB_KEYS.len()), None);
        assert_eq!(asked(b'q'), Asked::Quit);
        assert_eq!(asked(b'l'), Asked::List);
        assert_eq!(asked(0x1b), Asked::Nothing);
    }
}
