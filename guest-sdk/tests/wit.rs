//! The SDK carries its own copy of the WIT, so that it builds outside the checkout; this test
//! keeps the copy equal to the original.

#![allow(clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn files(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a folder of WIT") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "wit") {
            let name = path
                .strip_prefix(root)
                .expect("a path below the root")
                .to_owned();
            found.insert(name, fs::read(&path).expect("a file"));
        }
    }
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    files(root, root, &mut found);
    found
}

#[test]
fn the_sdk_carries_the_wit_of_the_project() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (original, copy) = (tree(&here.join("../wit")), tree(&here.join("wit")));
    assert!(!original.is_empty());
    assert_eq!(
        original.keys().collect::<Vec<_>>(),
        copy.keys().collect::<Vec<_>>(),
        "copy /wit to guest-sdk/wit"
    );
    for (name, bytes) in &original {
        assert!(
            copy[name] == *bytes,
            "{} differs: copy /wit to guest-sdk/wit",
            name.display()
        );
    }
}
