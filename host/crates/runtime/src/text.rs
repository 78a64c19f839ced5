//! Guest text made safe for logs, terminals and records.

use std::fmt::Write as _;

/// Most bytes of a message that are kept.
pub(crate) const MESSAGE_MAX: usize = 4096;

/// Whether a character could move the cursor, hide text or turn its direction.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// One line of at most `max` bytes: control and direction characters are written as escapes, and
/// what is too long is cut at a character and marked. The second value is the bytes that were cut.
pub(crate) fn one_line(text: &str, max: usize) -> (String, usize) {
    clean(text, max, |_| false)
}

/// A message of a guest for people, within [`MESSAGE_MAX`], on one line.
pub(crate) fn message(text: &str) -> String {
    one_line(text.trim_end(), MESSAGE_MAX).0
}

/// Like [`message`], but line feeds stay: for backtraces.
pub(crate) fn block(text: &str, max: usize) -> String {
    clean(text, max, |c| c == '\n').0
}

fn clean(text: &str, max: usize, keep: impl Fn(char) -> bool) -> (String, usize) {
    let mut out = String::with_capacity(text.len().min(max));
    for (at, c) in text.char_indices() {
        let before = out.len();
        match c {
            c if keep(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push(' '),
            c if is_hostile(c) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
        if out.len() > max {
            out.truncate(before);
            out.push('…');
            return (out, text.len() - at);
        }
    }
    (out, 0)
}

/// The text of bytes that a guest wrote to a stream: what is no UTF-8 is replaced.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible() {
        assert_eq!(
            message("a\nb\x1b[31mred\r\t\u{202e}x"),
            "a\\nb\\u{1b}[31mred\\r \\u{202e}x"
        );
        assert_eq!(block("a\nb\x07", 100), "a\nb\\u{7}");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let (line, cut) = one_line("äöü", 4);
        assert_eq!(line, "äö…");
        assert_eq!(cut, 2);
        assert!(message(&"x".repeat(10_000)).len() <= MESSAGE_MAX + '…'.len_utf8());
    }
}
