//! A checksum of a set of documents that does not depend on their order.
//!
//! Each document counts with the 64-bit FNV-1a hash of its JSON text (keys sorted at every level,
//! no blanks), stirred by the finaliser of splitmix64; the checksum is the sum modulo 2^64, written
//! as 16 hexadecimal digits. Client and server each have an implementation of their own; a test on
//! either side holds it to the same figure.

use serde_json::Value;

/// The share of one document.
pub fn of_document(document: &Value) -> u64 {
    let mut sorted = document.clone();
    sorted.sort_all_objects();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in sorted.to_string().bytes() {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0100_0000_01b3);
    }
    stir(hash)
}

/// The checksum of a set of documents.
pub fn of_all<'a>(documents: impl IntoIterator<Item = &'a Value>) -> u64 {
    documents
        .into_iter()
        .fold(0, |sum, document| sum.wrapping_add(of_document(document)))
}

/// A checksum as text.
pub fn to_text(checksum: u64) -> String {
    format!("{checksum:016x}")
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
    fn order_of_documents_and_keys_does_not_matter() {
        let (a, b) = (json!({"id": "a", "n": 1}), json!({"n": 2, "id": "b"}));
        let b_sorted = json!({"id": "b", "n": 2});
        assert_eq!(of_all([&a, &b]), of_all([&b_sorted, &a]));
        assert_ne!(of_all([&a]), of_all([&a, &a]));
    }

    #[test]
    fn the_figure_that_clients_are_held_to() {
        let documents = [
            json!({"id": "m-1", "balance": -5}),
            json!({"id": "m-2", "name": "Zoë"}),
        ];
        assert_eq!(to_text(of_all(&documents)), "848b88cce01d11f6");
    }
}
