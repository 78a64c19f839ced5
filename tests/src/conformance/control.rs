//! Wake-ups.

use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use wasmcron_store::control::Wake;

use super::world::{World, keep};

/// The next wake-up that is one of those asked for.
async fn next(world: &World, wakes: &mut Receiver<Wake>, wanted: &Wake) {
    world
        .until(&format!("{wanted:?}"), async || {
            while let Ok(wake) = wakes.try_recv() {
                if wake == *wanted {
                    return Some(());
                }
            }
            None
        })
        .await;
}

/// Every verb that somebody may wait for wakes the listeners.
pub async fn verbs_wake_the_listeners(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let mut wakes = store.listen();
    next(&world, &mut wakes, &Wake::Subscribed).await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    store.pause(&job, "ann", "").await.expect("pause");
    next(&world, &mut wakes, &Wake::Jobs).await;
    store.resume(&job, "ann").await.expect("resume");
    next(&world, &mut wakes, &Wake::Jobs).await;
    let run = world.submitted(&world.manual(&job)).await;
    next(&world, &mut wakes, &Wake::Due).await;
    world.promoted(&term, &run, &pod).await;
    let running = world.begin(&pod).await;
    store
        .finish(&running.retry(Duration::ZERO))
        .await
        .expect("finish");
    next(&world, &mut wakes, &Wake::Due).await;
    world.promoted(&term, &run, &pod).await;
    world.begin(&pod).await;
    store.cancel(&run, "ann", keep()).await.expect("cancel");
    next(&world, &mut wakes, &Wake::Cancel { run: run.clone() }).await;
    store.leave(&other).await.expect("leave");
    next(&world, &mut wakes, &Wake::Left { pod: other.address }).await;
    store.resign(&term).await.expect("resign");
    next(&world, &mut wakes, &Wake::LeaderFree).await;
    let mine = Wake::Cancel { run };
    store.wake(&mine).await.expect("wake");
    next(&world, &mut wakes, &mine).await;
}

/// Every listener is woken, and one that is slow loses wake-ups rather than holding anybody up.
pub async fn a_slow_listener_holds_nobody_up(world: World) {
    let (mut quick, mut slow) = (world.store.listen(), world.store.listen());
    next(&world, &mut quick, &Wake::Subscribed).await;
    next(&world, &mut slow, &Wake::Subscribed).await;
    for _ in 0..wasmcron_store::control::WAKES_MAX + 50 {
        world.store.wake(&Wake::Due).await.expect("wake");
    }
    world.store.wake(&Wake::Jobs).await.expect("wake");
    next(&world, &mut quick, &Wake::Due).await;
    next(&world, &mut slow, &Wake::Due).await;
}
