//! What the nodes of a cluster say of it: who has which slots, and whether it takes requests.

use redis::Value;

use super::codec::text;
use super::place::Node;

/// Slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;
/// Stretches of slots that one message names.
const NAMED_MAX: usize = 8;

/// A stretch of slots, and who has it: the primary first, then its replicas.
struct Shard {
    first: u16,
    last: u16,
    servers: Vec<Node>,
}

/// Who has which slots.
pub(super) struct Shards(Vec<Shard>);

impl Shards {
    /// Reads the answer to CLUSTER SLOTS of the server that was asked.
    pub(super) fn of(answer: &Value, asked: &Node) -> Option<Shards> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let number = |value: &Value| text(value).and_then(|text| text.parse::<u16>().ok());
        let shard = |range: &Value| {
            let Value::Array(parts) = range else {
                return None;
            };
            let [first, last, servers @ ..] = parts.as_slice() else {
                return None;
            };
            let servers = servers.iter().filter_map(|one| server_of(one, asked));
            Some(Shard {
                first: number(first)?,
                last: number(last)?,
                servers: servers.collect(),
            })
        };
        Some(Shards(ranges.iter().filter_map(shard).collect()))
    }

    /// Who has a slot.
    pub(super) fn primary(&self, slot: u16) -> Option<&Node> {
        let shard = self
            .0
            .iter()
            .find(|it| (it.first..=it.last).contains(&slot))?;
        shard.servers.first()
    }

    /// Every server.
    pub(super) fn servers(&self) -> Vec<Node> {
        self.0
            .iter()
            .flat_map(|shard| shard.servers.iter().cloned())
            .collect()
    }

    /// The slots that nobody has, for people; none if there are none.
    pub(super) fn uncovered(&self) -> Option<String> {
        let mut covered: Vec<(u16, u16)> = self.0.iter().map(|it| (it.first, it.last)).collect();
        covered.sort_unstable();
        let (mut next, mut holes) = (0, Vec::new());
        for (first, last) in covered.into_iter().chain([(SLOTS, SLOTS)]) {
            if first > next {
                holes.push((next, first - 1));
            }
            next = next.max(last.saturating_add(1));
        }
        let count: u32 = holes
            .iter()
            .map(|(first, last)| u32::from(last - first) + 1)
            .sum();
        let named: Vec<String> = holes
            .iter()
            .take(NAMED_MAX)
            .map(|(first, last)| {
                if first == last {
                    first.to_string()
                } else {
                    format!("{first}-{last}")
                }
            })
            .collect();
        let more = if holes.len() > NAMED_MAX { ", …" } else { "" };
        let slots = named.join(", ");
        (count > 0).then(|| format!("{count} of {SLOTS} slots have no owner ({slots}{more})"))
    }
}

/// A server in the answer to CLUSTER SLOTS; one without a host is on the host that was asked.
fn server_of(value: &Value, asked: &Node) -> Option<Node> {
    let Value::Array(parts) = value else {
        return None;
    };
    let host = parts.first().and_then(text).unwrap_or_default();
    let host = if host.is_empty() || host == "?" {
        asked.host.clone()
    } else {
        host
    };
    let port = parts.get(1).and_then(text)?.parse().ok()?;
    Some(Node { host, port })
}

/// Why a cluster takes no requests, from its answer to CLUSTER INFO; none if it takes them.
pub(super) fn refusal(info: &str, shards: &Shards) -> Option<String> {
    if !info.contains("cluster_state:fail") {
        return None;
    }
    let why = shards.uncovered().unwrap_or_else(|| {
        let number = info
            .lines()
            .find_map(|line| line.trim_end().strip_prefix("cluster_slots_fail:"));
        match number.filter(|number| *number != "0") {
            Some(number) => format!("the owners of {number} slots are down"),
            None => "its nodes do not reach each other".to_owned(),
        }
    });
    Some(format!(
        "the cluster takes no requests (cluster_state:fail): {why}; `redis-cli --cluster check` and `fix` help"
    ))
}

/// What endangers a cluster that takes requests all the same.
pub(super) fn warning(shards: &Shards) -> Option<String> {
    let uncovered = shards.uncovered()?;
    Some(format!(
        "the cluster is not whole: {uncovered}; this namespace's slot has one, so pods go on"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Node {
        Node {
            host: "asked".into(),
            port: 1,
        }
    }

    fn shards(ranges: &[(u16, u16)]) -> Shards {
        let word = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let ranges = ranges.iter().map(|(first, last)| {
            let server = vec![word(""), Value::Int(i64::from(*first))];
            Value::Array(vec![
                Value::Int(i64::from(*first)),
                Value::Int(i64::from(*last)),
                Value::Array(server),
            ])
        });
        Shards::of(&Value::Array(ranges.collect()), &asked()).expect("shards")
    }

    #[test]
    fn holes_are_counted_and_named() {
        let said = |ranges: &[(u16, u16)]| shards(ranges).uncovered();
        assert_eq!(said(&[(0, 16_383)]), None);
        assert_eq!(said(&[(5_461, 16_383), (0, 5_460)]), None);
        for (ranges, expected) in [
            (&[][..], "16384 of 16384 slots have no owner (0-16383)"),
            (&[(1, 16_382)], "2 of 16384 slots have no owner (0, 16383)"),
            (
                &[(0, 99), (200, 16_383)],
                "100 of 16384 slots have no owner (100-199)",
            ),
        ] {
            assert_eq!(said(ranges).as_deref(), Some(expected));
        }
        let every_other: Vec<_> = (0..100).map(|n| (2 * n, 2 * n)).collect();
        let said = shards(&every_other).uncovered().expect("holes");
        assert!(said.ends_with("(1, 3, 5, 7, 9, 11, 13, 15, …)"), "{said}");
    }

    #[test]
    fn a_server_without_a_host_is_where_it_was_asked() {
        let found = shards(&[(7, 9)]);
        let primary = found.primary(8).expect("a primary");
        assert_eq!((primary.host.as_str(), primary.port), ("asked", 7));
        assert_eq!(found.primary(10), None);
    }

    #[test]
    fn a_cluster_that_takes_no_requests_says_why() {
        let whole = shards(&[(0, 16_383)]);
        let fails = "cluster_state:fail\r\ncluster_slots_fail:5461\r\n";
        assert_eq!(refusal("cluster_state:ok\r\n", &whole), None);
        for (info, shards, expected) in [
            (fails, &whole, "owners of 5461 slots are down"),
            (
                "cluster_state:fail\r\ncluster_slots_fail:0\r\n",
                &whole,
                "do not reach",
            ),
            (fails, &shards(&[(0, 16_000)]), "383 of 16384 slots"),
        ] {
            let said = refusal(info, shards).expect("a refusal");
            assert!(said.contains(expected), "{said}");
        }
    }
}
