//! A checksum of a set of documents that does not depend on their order.
//!
//! Each document counts with the 64-bit FNV-1a hash of its JSON text (keys sorted at every level,
//! no blanks), stirred by the finaliser of splitmix64; the checksum is the sum modulo 2^64, written
//! as 16 hexadecimal digits. The target computes the same; a test on either side holds it to the
//! same figure.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The checksum of the documents added so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Adds a document.
    pub(crate) fn add(&mut self, document: &Value) {
        let mut sorted = document.clone();
        sorted.sort_all_objects();
        let hash = stir(fnv1a(sorted.to_string().as_bytes()));
        self.0 = self.0.wrapping_add(hash);
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("a checksum has 16 hexadecimal digits"))
    }
}

/// 64-bit FNV-1a.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// FNV's last bytes reach its low bits only; a sum needs all bits stirred.
fn stir(hash: u64) -> u64 {
    let mut mixed = hash;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_figure_that_targets_are_held_to() {
        let mut checksum = Checksum::default();
        checksum.add(&json!({"name": "Zoë", "id": "m-2"}));
        checksum.add(&json!({"id": "m-1", "balance": -5}));
        assert_eq!(checksum.to_string(), "848b88cce01d11f6");
        let text = serde_json::to_string(&checksum).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Checksum>(&text).expect("a checksum"),
            checksum
        );
    }
}
