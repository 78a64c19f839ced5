//! Redis' protocol as far as tests read it themselves.

use anyhow::{Context as _, Result, bail};

/// A value: an answer of the server, or a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A text of either kind.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// No value.
    Nothing,
    /// A list.
    Many(Vec<Reply>),
    /// A refusal.
    Error(String),
}

impl Reply {
    /// It as text; empty for everything else.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        match self {
            Reply::Text(text) => text,
            _ => &[],
        }
    }

    /// It as a list; empty for everything else.
    #[must_use]
    pub fn many(&self) -> &[Reply] {
        match self {
            Reply::Many(items) => items,
            _ => &[],
        }
    }
}

/// A command as it goes over the wire.
#[must_use]
pub fn command(words: &[&str]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    request.into_bytes()
}

/// The first whole value in some bytes, and its length; none while it is not whole.
///
/// # Errors
/// When the bytes begin with no value.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let (line, mut at) = (&bytes[..end], end + 2);
    let Some((kind, rest)) = line.split_first() else {
        bail!("an empty line");
    };
    let text = String::from_utf8_lossy(rest);
    let number = || text.parse::<i64>().context("a number");
    let reply = match kind {
        b'+' => Reply::Text(rest.to_vec()),
        b'-' => Reply::Error(text.into_owned()),
        b':' => Reply::Number(number()?),
        b'$' | b'*' if number()? < 0 => Reply::Nothing,
        b'$' => {
            let length = usize::try_from(number()?)?;
            if bytes.len() < at + length + 2 {
                return Ok(None);
            }
            let text = bytes[at..at + length].to_vec();
            at += length + 2;
            Reply::Text(text)
        }
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..number()? {
                let Some((item, length)) = parse(&bytes[at..])? else {
                    return Ok(None);
                };
                items.push(item);
                at += length;
            }
            Reply::Many(items)
        }
        other => bail!("a value of kind {other}"),
    };
    Ok(Some((reply, at)))
}
