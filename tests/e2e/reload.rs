//! Plugins and job files change while pods run.

use std::time::Duration;

use wasmcron_core::ids::Digest;
use wasmcron_core::run::RunState;
use wasmcron_tests::guests;

use crate::harness::{Fleet, Midway, PATIENCE, Timing, jobs, until};

/// A hot swap during a run: the run ends on the old version, the next uses the new one. (C73)
#[tokio::test(flavor = "multi_thread")]
async fn c73_a_hot_swap_during_a_run() {
    let (target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    let old = guests::bytes("stepper").expect("a guest");
    let new = guests::retagged(&old, "second");
    fleet.write_plugin("stepper", &old);
    fleet.write_job("steps", &jobs::stepper(&server.url(), 30, 60, ""));
    let pod = fleet.pod("a").await;
    fleet.opened(&["steps"]).await;
    let first = fleet.trigger("steps", "{}").await;
    until("it to run", PATIENCE, async || {
        (!target.effects().is_empty()).then_some(())
    })
    .await;
    fleet.write_plugin("stepper", &new);
    reports(&fleet, "stepper", &Digest::of(&new)).await;
    assert_eq!(
        fleet
            .store()
            .run(&first)
            .await
            .expect("it")
            .expect("it")
            .state,
        RunState::Running
    );
    let first = fleet.ended(&first).await;
    assert_eq!(first.state, RunState::Succeeded);
    assert_eq!(first.attempts[0].digest, Some(Digest::of(&old)));
    let second = fleet.trigger("steps", "{\"steps\": 1}").await;
    let second = fleet.ended(&second).await;
    assert_eq!(second.attempts[0].digest, Some(Digest::of(&new)));

    // Deleted: what runs ends, later firings say what is missing, and nothing vanishes.
    std::fs::remove_file(fleet.plugins().join("stepper.wasm")).expect("delete");
    until("the pod to be without it", PATIENCE, async || {
        let pods = fleet.store().pods().await.expect("pods");
        pods[0].report.as_ref()?.plugins.is_empty().then_some(())
    })
    .await;
    let third = fleet.trigger("steps", "{\"steps\": 1}").await;
    until("the reason", PATIENCE, async || {
        let waits = fleet.store().delayed(&third).await.expect("it")?;
        waits
            .why
            .contains("no live pod has the plugin stepper")
            .then_some(())
    })
    .await;
    fleet.write_plugin("stepper", &old);
    assert_eq!(fleet.ended(&third).await.state, RunState::Succeeded);
    drop(pod);
}

/// A job that hands over: the run yields on the old version and goes on, where it was, on the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_handed_over_to_the_newer_version() {
    let midway = Midway::start(Timing::Fast, &["a"], 60, 60, "reload = \"handoff\"").await;
    let new = guests::retagged(&guests::bytes("stepper").expect("a guest"), "newer");
    midway.fleet.write_plugin("stepper", &new);
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    let [old, newer] = &record.attempts[..] else {
        panic!("{record:?}")
    };
    assert_ne!(old.digest, newer.digest);
    assert_eq!(newer.digest, Some(Digest::of(&new)));
    assert_eq!(record.recoveries, 0, "a hand-over is no recovery");
    assert_eq!(midway.steps().len(), 60, "no step is done twice");
}

/// A truncated module: the old version keeps serving, with one warning, until the bytes are whole. (C72)
#[tokio::test(flavor = "multi_thread")]
async fn c72_a_truncated_module_changes_nothing() {
    let fleet = Fleet::new(Timing::Fast).await;
    let old = guests::bytes("hello").expect("a guest");
    fleet.write_plugin("hello", &old);
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let pod = fleet.pod("a").await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    fleet.write_plugin("hello", &old[..old.len() / 2]);
    until("the refusal", PATIENCE, async || {
        (pod.metric("reload_failed_total{kind=\"plugin\"}").await == 1.0).then_some(())
    })
    .await;
    let refused_at = fleet.now().await;
    let still = fleet.run_where("tick", "is later", |run| {
        run.nominal > refused_at + Duration::from_millis(900) && run.state.is_ended()
    });
    let still = still.await;
    assert_eq!(still.state, RunState::Succeeded);
    assert_eq!(still.attempts[0].digest, Some(Digest::of(&old)));
    let new = guests::retagged(&old, "whole");
    fleet.write_plugin("hello", &new);
    let next = fleet.run_where("tick", "uses the new version", |run| {
        run.attempts
            .first()
            .is_some_and(|one| one.digest == Some(Digest::of(&new)))
    });
    next.await;
    assert_eq!(
        pod.metric("reload_failed_total{kind=\"plugin\"}").await,
        1.0
    );
}

/// A pod that starts with a broken plugin serves the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_plugin_at_start_hurts_nobody_else() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_plugin("broken", b"this is no module");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    fleet.write_job("stuck", "plugin = \"broken\"\nevery = \"1s\"\n");
    let _pod = fleet.pod("a").await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    let (out, _, code) = fleet.cli(&["job", "show", "stuck"]).await;
    assert_eq!(code, 0);
    assert!(out.contains("plugin"), "{out}");
}

/// A changed schedule rules from when the pods took it up; the file is followed without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_job_file_is_followed() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("cron = \"@yearly\""));
    let _pods = [fleet.pod("a").await, fleet.pod("b").await];
    fleet.opened(&["tick"]).await;
    fleet.write_job("tick", &jobs::hello("every = \"400ms\""));
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
}

/// A job whose firing found no pod is mended by its file: the new definition does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_mended_job_file_is_not_held_up_by_the_old_one() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", "plugin = \"helo\"\nevery = \"500ms\"\n");
    let _pod = fleet.pod("a").await;
    let name = "tick".parse().expect("a name");
    until("the firing to wait", PATIENCE, async || {
        let view = fleet.store().job(&name).await.expect("the job")?;
        view.waiting.filter(|waiting| waiting.why.contains("helo"))
    })
    .await;
    fleet.write_job("tick", &jobs::hello("every = \"500ms\""));
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    until("nothing to wait", PATIENCE, async || {
        let view = fleet.store().job(&name).await.expect("the job")?;
        view.waiting.is_none().then_some(())
    })
    .await;
}

/// Waits until a pod reports this version of a plugin.
async fn reports(fleet: &Fleet, plugin: &str, digest: &Digest) {
    until(
        &format!("{plugin} {}", digest.short()),
        PATIENCE,
        async || {
            let pods = fleet.store().pods().await.expect("pods");
            let report = pods[0].report.as_ref()?;
            (report.plugins.get(plugin) == Some(digest)).then_some(())
        },
    )
    .await;
}
