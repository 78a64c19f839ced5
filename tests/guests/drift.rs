//! C82: components that do not fit the contract are refused, and say where.

use bytes::Bytes;
use serde_json::json;
use wasmcron_runtime::{CodeOrigin, LoadError, LoadStage, Runtime, Want};

use crate::harness::{config, hostile, hostile_bytes, runtime};

async fn refused(bytes: impl Into<Bytes>) -> LoadError {
    let error = runtime().load("drifted", bytes.into()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("plugin `drifted` "),
        "{error}"
    );
    error
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn says(error: &LoadError, stage: LoadStage, words: &[&str]) {
    assert_eq!(error.stage, stage, "{error}");
    for word in words {
        assert!(error.message.contains(word), "`{word}` in: {error}");
    }
}

#[tokio::test]
async fn c82_what_is_no_component_is_refused() {
    says(
        &refused("just some text").await,
        LoadStage::Format,
        &["not WebAssembly"],
    );
    says(
        &refused("(component)").await,
        LoadStage::Format,
        &["WebAssembly text"],
    );
    let core = component("(module (func (export \"run\")))");
    says(
        &refused(core).await,
        LoadStage::Format,
        &["core module", "wasm32-wasip2"],
    );
    let half = hostile_bytes().slice(..50_000);
    says(
        &refused(half).await,
        LoadStage::Compile,
        &["cannot be compiled"],
    );
}

#[tokio::test]
async fn c82_precompiled_code_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config();
    config.cache_dir = Some(dir.path().to_owned());
    let own = Runtime::new(config).unwrap();
    own.load("hostile", hostile_bytes()).await.unwrap();
    let entry = std::fs::read_dir(dir.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let code = std::fs::read(entry.path()).unwrap();
    says(&refused(code).await, LoadStage::Format, &[".cwasm"]);
}

#[tokio::test]
async fn c82_an_unknown_import_is_named() {
    let bytes = component(
        r#"(component (import "acme:queue/publish@1.0.0" (instance (export "send" (func)))))"#,
    );
    says(
        &refused(bytes).await,
        LoadStage::World,
        &["acme:queue/publish@1.0.0", "does not offer"],
    );
}

#[tokio::test]
async fn c82_a_wrong_version_is_named_with_the_offered_one() {
    let import = component(
        r#"(component (import "wasmcron:job/log@0.2.0" (instance (export "log" (func)))))"#,
    );
    says(
        &refused(import).await,
        LoadStage::World,
        &["wasmcron:job/log", "0.2.0", "0.1.0"],
    );
    let export = component(
        r#"(component (instance $i) (export "wasmcron:job/handler@0.7.0" (instance $i)))"#,
    );
    says(
        &refused(export).await,
        LoadStage::World,
        &["wasmcron:job/handler", "0.7.0", "0.1.0"],
    );
}

#[tokio::test]
async fn c82_an_enum_with_a_case_less_is_a_mismatch_of_its_function() {
    let bytes = component(
        r#"(component
            (import "wasmcron:job/control@0.1.0" (instance
                (type $reason' (enum "draining" "cancelled" "time-out-near" "reload"))
                (export "stop-reason" (type $reason (eq $reason')))
                (export "should-stop" (func (result (option $reason)))))))"#,
    );
    says(
        &refused(bytes).await,
        LoadStage::World,
        &["wasmcron:job/control@0.1.0", "should-stop"],
    );
}

#[tokio::test]
async fn c82_missing_exports_are_named() {
    says(
        &refused(component("(component)")).await,
        LoadStage::World,
        &["exports nothing", "wasmcron:job/handler@0.1.0"],
    );
    let without_run = component(
        r#"(component (instance $i) (export "wasmcron:job/handler@0.1.0" (instance $i)))"#,
    );
    says(&refused(without_run).await, LoadStage::World, &["describe"]);
    let other =
        component(r#"(component (instance $i) (export "wasi:cli/run@0.2.0" (instance $i)))"#);
    says(
        &refused(other).await,
        LoadStage::World,
        &["wasi:cli/run@0.2.0", "wasmcron:job/handler@0.1.0"],
    );
}

#[tokio::test]
async fn c82_others_load_all_the_same_and_tell_who_they_are() {
    let plugin = hostile().await;
    let metadata = plugin.metadata();
    assert_eq!(
        (metadata.name.as_str(), metadata.checkpoint_schema),
        ("hostile", 3)
    );
    assert_eq!(
        metadata.wants,
        [Want::Http("param:url".into()), Want::Secret("token".into())]
    );
    assert_eq!(plugin.size(), hostile_bytes().len() as u64);
    assert_eq!(
        *plugin.digest(),
        wasmcron_core::ids::Digest::of(&hostile_bytes())
    );
    assert!(plugin.check_parameters(&json!({ "do": "ok" })).is_ok());
    let faults = plugin
        .check_parameters(&json!({ "count": "many" }))
        .unwrap_err()
        .join("\n");
    assert!(
        faults.contains("`/count`") && faults.contains("\"do\""),
        "{faults}"
    );
}

#[tokio::test]
async fn a_compiled_plugin_comes_from_the_cache_and_a_damaged_entry_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut config = config();
        config.cache_dir = Some(dir.path().to_owned());
        Runtime::new(config).unwrap()
    };
    let origin = |runtime: std::sync::Arc<Runtime>| async move {
        runtime
            .load("hostile", hostile_bytes())
            .await
            .unwrap()
            .code_origin()
    };
    assert_eq!(origin(start()).await, CodeOrigin::Compiled);
    assert_eq!(origin(start()).await, CodeOrigin::Cache);
    let entry = std::fs::read_dir(dir.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut code = std::fs::read(&entry).unwrap();
    code.truncate(code.len() / 2);
    std::fs::write(&entry, code).unwrap();
    assert_eq!(origin(start()).await, CodeOrigin::Compiled);
    assert_eq!(origin(start()).await, CodeOrigin::Cache);
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_describe_is_refused() {
    let mut config = config();
    config.describe_time = std::time::Duration::ZERO;
    let error = Runtime::new(config)
        .unwrap()
        .load("slow", hostile_bytes())
        .await
        .unwrap_err();
    says(&error, LoadStage::Describe, &["describe", "time limit"]);
}
