//! As much of URLs as a client needs.

/// The parts of a URL that a connection needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether the scheme is `https`.
    pub tls: bool,
    /// Host and port as written.
    pub authority: String,
    /// Path and query, beginning with `/`.
    pub path_and_query: String,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            format!(
                "`{}` has no scheme; http:// and https:// are accepted",
                without_query(url)
            )
        })?;
        let tls = if scheme.eq_ignore_ascii_case("https") {
            true
        } else if scheme.eq_ignore_ascii_case("http") {
            false
        } else {
            return Err(format!("scheme `{scheme}`; http and https are accepted"));
        };
        // A fragment is the client's own business and never sent.
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() {
            return Err("the URL has no host".to_owned());
        }
        if authority.contains('@') {
            return Err("credentials in a URL; send an `authorization` header".to_owned());
        }
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("the URL has blanks or control characters; percent-encode them".to_owned());
        }
        let path_and_query = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Ok(Self {
            tls,
            authority: authority.to_owned(),
            path_and_query,
        })
    }
}

/// A URL without its query, which may carry what should not be logged.
pub(super) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Appends a query parameter.
pub(super) fn push_query(url: &mut String, name: &str, value: &str) {
    url.push(if url.contains('?') { '&' } else { '?' });
    push_encoded(url, name);
    url.push('=');
    push_encoded(url, value);
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn push_encoded(out: &mut String, text: &str) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::parse("https://api.example.com:8443/a/b?c=d#e").expect("a URL");
        assert_eq!(
            target,
            Target {
                tls: true,
                authority: "api.example.com:8443".to_owned(),
                path_and_query: "/a/b?c=d".to_owned()
            }
        );
        assert_eq!(
            Target::parse("http://h?x=1").expect("a URL").path_and_query,
            "/?x=1"
        );
        assert_eq!(
            Target::parse("HTTP://h").expect("a URL").path_and_query,
            "/"
        );
    }

    #[test]
    fn what_is_not_a_url_is_refused_with_what_is_accepted() {
        for (url, part) in [
            ("api.example.com", "http:// and https://"),
            ("ftp://h/", "http and https are accepted"),
            ("http:///x", "no host"),
            ("http://user:pw@h/", "authorization"),
            ("http://h/a b", "percent-encode"),
        ] {
            let why = Target::parse(url).expect_err(url);
            assert!(why.contains(part), "{url}: {why}");
            assert!(!why.contains("pw"), "{why}");
        }
    }

    #[test]
    fn queries_are_encoded() {
        let mut url = "http://h/x".to_owned();
        push_query(&mut url, "cursor", "a b|é+");
        push_query(&mut url, "n", "1");
        assert_eq!(url, "http://h/x?cursor=a%20b%7C%C3%A9%2B&n=1");
    }
}
