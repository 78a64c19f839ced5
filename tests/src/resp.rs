//! Redis' protocol as far as tests read it themselves.

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt as _};

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

/// Values that come over a connection, one after the other.
#[derive(Debug)]
pub struct Values<R> {
    from: R,
    read: Vec<u8>,
    /// How many of the bytes are those of the latest value.
    latest: usize,
}

impl<R: AsyncRead + Unpin> Values<R> {
    /// Those of a connection from now on.
    #[must_use]
    pub fn of(from: R) -> Values<R> {
        Values {
            from,
            read: Vec::with_capacity(4_096),
            latest: 0,
        }
    }

    /// The connection.
    pub fn connection(&mut self) -> &mut R {
        &mut self.from
    }

    /// The next one.
    ///
    /// # Errors
    /// When the connection ends or fails, or what comes is no value.
    pub async fn next(&mut self) -> Result<Reply> {
        self.read.drain(..std::mem::take(&mut self.latest));
        loop {
            if let Some((value, length)) = parse(&self.read)? {
                self.latest = length;
                return Ok(value);
            }
            if self.from.read_buf(&mut self.read).await? == 0 {
                bail!("the connection was closed");
            }
        }
    }

    /// The bytes that the latest one came in.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.read[..self.latest]
    }
}
