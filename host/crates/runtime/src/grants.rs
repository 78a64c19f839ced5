//! Outbound HTTP grants: an origin, optionally narrowed to methods and path prefixes.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::{Method, Uri};

/// A scheme, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// `true` for `https`, `false` for `http`.
    pub tls: bool,
    /// Host name in lower case, or an IP address without brackets.
    pub host: String,
    /// The port, the scheme's own one if none was written.
    pub port: u16,
}

impl Origin {
    /// The address, if the host is one literally.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether the host is `localhost` or a literal IP address: whoever wrote that meant this
    /// machine or exactly that address.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.host == "localhost" || self.ip().is_some()
    }

    /// The origin of an absolute URI.
    ///
    /// # Errors
    ///
    /// One sentence that names what is missing or not accepted.
    pub fn of(uri: &Uri) -> Result<Self, String> {
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(other) => {
                return Err(format!("scheme `{other}` is not one of `http` and `https`"));
            }
            None => {
                return Err("it must begin with `http://` or `https://`".to_owned());
            }
        };
        let authority = uri.authority().ok_or("the host is missing")?;
        if authority.as_str().contains('@') {
            return Err("it must not carry a user name or password".to_owned());
        }
        let host = authority.host();
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        // A trailing dot names the same host and must not make it another origin.
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if host.is_empty() {
            return Err("the host is missing".to_owned());
        }
        let port = match authority.as_str().rsplit_once(':') {
            Some((before, digits)) if !before.is_empty() && !digits.ends_with(']') => digits
                .parse()
                .map_err(|_| format!("`{digits}` is not a port"))?,
            _ => {
                if tls {
                    443
                } else {
                    80
                }
            }
        };
        Ok(Self { tls, host, port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// One granted origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    /// Where requests may go.
    pub origin: Origin,
    /// Methods that are allowed; empty: all.
    pub methods: Vec<Method>,
    /// Prefixes of which the path must have one, whole segments only: `/v1` allows `/v1` and
    /// `/v1/x`, not `/v10`. Empty: every path.
    pub paths: Vec<String>,
}

impl HttpGrant {
    /// Whether the grant covers a request.
    #[must_use]
    pub fn allows(&self, origin: &Origin, method: &Method, path: &str) -> bool {
        self.origin == *origin
            && (self.methods.is_empty() || self.methods.contains(method))
            && (self.paths.is_empty() || self.paths.iter().any(|prefix| under(prefix, path)))
    }
}

/// Whether `path` is `prefix` or below it. A path that a server could resolve to somewhere else
/// (dot segments, encoded or not, or a backslash) is below nothing.
fn under(prefix: &str, path: &str) -> bool {
    let decoded = path
        .replace("%2e", ".")
        .replace("%2E", ".")
        .replace("%2f", "/")
        .replace("%2F", "/");
    if decoded.contains('\\')
        || decoded.to_ascii_lowercase().contains("%5c")
        || decoded
            .split('/')
            .any(|segment| matches!(segment, "." | ".."))
    {
        return false;
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl FromStr for HttpGrant {
    type Err = String;

    /// Reads `https://host[:port][/path-prefix]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text
            .parse()
            .map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        let origin = Origin::of(&uri).map_err(|error| format!("`{text}`: {error}"))?;
        if uri.query().is_some() {
            return Err(format!(
                "`{text}`: a grant is an origin and a path prefix, without a query"
            ));
        }
        let paths = match uri.path() {
            "" | "/" => Vec::new(),
            path => vec![path.to_owned()],
        };
        Ok(Self {
            origin,
            methods: Vec::new(),
            paths,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> HttpGrant {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn allows(grant: &HttpGrant, method: &Method, url: &str) -> bool {
        let uri: Uri = url.parse().unwrap_or_else(|error| panic!("{error}"));
        let origin = Origin::of(&uri).unwrap_or_else(|error| panic!("{error}"));
        grant.allows(&origin, method, uri.path())
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let api = grant("https://API.example.com");
        assert!(allows(&api, &Method::GET, "https://api.example.com/x"));
        assert!(allows(&api, &Method::GET, "https://api.example.com:443/x"));
        assert!(allows(&api, &Method::GET, "https://api.example.com./x"));
        assert!(!allows(&api, &Method::GET, "http://api.example.com/x"));
        assert!(!allows(
            &api,
            &Method::GET,
            "https://api.example.com:8443/x"
        ));
        assert!(!allows(
            &api,
            &Method::GET,
            "https://api.example.com.evil.org/x"
        ));
    }

    #[test]
    fn a_path_prefix_means_whole_segments() {
        let v1 = grant("http://127.0.0.1:9000/v1/");
        assert!(allows(&v1, &Method::GET, "http://127.0.0.1:9000/v1/x"));
        assert!(allows(&v1, &Method::GET, "http://127.0.0.1:9000/v1"));
        assert!(!allows(&v1, &Method::GET, "http://127.0.0.1:9000/v10"));
        assert!(!allows(&v1, &Method::GET, "http://127.0.0.1:9000/v1/../v2"));
        assert!(!allows(
            &v1,
            &Method::GET,
            "http://127.0.0.1:9000/v1/%2e%2E/v2"
        ));
        assert!(!allows(
            &v1,
            &Method::GET,
            "http://127.0.0.1:9000/v1/..%2fv2"
        ));
        assert!(!allows(
            &v1,
            &Method::GET,
            "http://127.0.0.1:9000/v1/%5c..%5cv2"
        ));
    }

    #[test]
    fn methods_narrow() {
        let mut read = grant("http://localhost:1");
        read.methods = vec![Method::GET];
        assert!(allows(&read, &Method::GET, "http://localhost:1/"));
        assert!(!allows(&read, &Method::POST, "http://localhost:1/"));
    }

    #[test]
    fn what_is_no_origin_is_refused_in_words() {
        for (text, word) in [
            ("ftp://x", "scheme `ftp`"),
            ("example.com", "http://"),
            ("https://u:p@example.com", "user name"),
            ("https://example.com?x=1", "query"),
            ("https://example.com:99999", "99999"),
        ] {
            let error = text.parse::<HttpGrant>().err().unwrap_or_default();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn ipv6_origins() {
        let six = grant("http://[::1]:8080");
        assert_eq!(
            six.origin.ip(),
            Some(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]))
        );
        assert_eq!(six.origin.port, 8080);
        assert_eq!(six.origin.to_string(), "http://[::1]:8080");
        assert_eq!(grant("http://[::1]").origin.port, 80);
    }
}
