//! One report per period, posted to a target that keeps the first of each run.
//!
//! An attempt may die after the target took the report and before the host heard of it. The next
//! attempt posts again; the run id as idempotency key makes that harmless. No checkpoint is
//! needed: there is one effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmcron_guest::{Context, Failure, Job, Metadata, Outcome, Want, http, info};

/// Parameters of the job.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// URL that takes the report by POST.
    target: String,
    /// The length of a period, which names the report.
    #[serde(default)]
    period: Period,
}

/// The length of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Period {
    /// A month, as `2026-01`.
    Month,
    /// A day, as `2026-01-31`.
    #[default]
    Day,
    /// An hour, as `2026-01-31T23`.
    Hour,
}

impl Period {
    /// The name of the period in which a time lies, in UTC: RFC 3339 text begins with it.
    fn of(self, time: &str) -> Result<&str, Failure> {
        let length = match self {
            Self::Month => "YYYY-MM".len(),
            Self::Day => "YYYY-MM-DD".len(),
            Self::Hour => "YYYY-MM-DDTHH".len(),
        };
        time.get(..length)
            .ok_or_else(|| Failure::fatal(format!("`{time}` is no RFC 3339 time")))
    }
}

/// What is posted. It tells nothing that differs between attempts, since the target keeps the first.
#[derive(Serialize)]
struct Report<'a> {
    period: &'a str,
    job: &'a str,
    run: &'a str,
    /// The report covers the time since the last one that succeeded; none: the first one.
    from: Option<&'a str>,
    to: &'a str,
}

struct DailyReport;

impl Job for DailyReport {
    type Params = Params;
    type Checkpoint = ();

    fn describe(metadata: Metadata) -> Metadata {
        metadata
            .parameters::<Params>()
            .want(Want::Http("param:target".to_owned()))
    }

    fn run(ctx: &mut Context<Self>, params: Params) -> Result<Outcome, Failure> {
        let call = ctx.call();
        let report = Report {
            period: params.period.of(&call.nominal_time)?,
            job: &call.job,
            run: &call.run_id,
            from: call.previous_success.as_deref(),
            to: &call.nominal_time,
        };
        let response = http::post(&params.target)
            .header("idempotency-key", &call.run_id)
            .header("x-run-id", &call.run_id)
            .header("x-attempt", call.attempt.to_string())
            .header("x-fence", &call.fence)
            .json(&report)?
            .send()?
            .error_for_status()?;
        let news = if response.status == 201 {
            "posted"
        } else {
            "had been posted before"
        };
        info!("report {} {news}", report.period);
        Ok(Outcome::done(format!("report {} {news}", report.period)))
    }
}

wasmcron_guest::export!(DailyReport);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use serde_json::{Value, json};
    use wasmcron_guest::http::Response;
    use wasmcron_guest::testing::{Ended, Fault, Harness};

    use super::*;

    type Kept = Rc<RefCell<BTreeMap<String, Value>>>;

    /// A target that keeps the first report of each key.
    fn harness() -> (Harness<DailyReport>, Kept) {
        let kept = Kept::default();
        let reports = kept.clone();
        let params = json!({ "target": "http://target/reports" });
        let harness = Harness::new().params(&params).http(move |request| {
            let key = request
                .headers
                .iter()
                .find(|(name, _)| name == "idempotency-key");
            let key = key.expect("a key").1.clone();
            let body = serde_json::from_slice(&request.body).expect("a report");
            let mut reports = reports.borrow_mut();
            let status = if reports.contains_key(&key) { 200 } else { 201 };
            reports.entry(key).or_insert(body);
            Ok(Response::new(status))
        });
        (harness, kept)
    }

    #[test]
    fn a_repeated_attempt_leaves_one_report() {
        let (mut harness, kept) = harness();
        assert_eq!(
            harness.attempt_with(Fault::KillAfterRequests(1)).ended,
            Ended::Killed
        );
        let done = Ended::Done("report 2026-01-01 had been posted before".to_owned());
        assert_eq!(harness.attempt().ended, done);
        assert_eq!(harness.requests().len(), 2);
        assert_eq!(harness.requests()[0].body, harness.requests()[1].body);
        assert_eq!(kept.borrow().len(), 1);
        assert_eq!(
            kept.borrow()["job@2026-01-01T00:00:00Z"]["to"],
            "2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_busy_target_is_tried_again_and_a_wrong_url_is_not() {
        let answer = |status| {
            let (harness, _) = harness();
            harness
                .http(move |_| Ok(Response::new(status)))
                .attempt()
                .ended
        };
        assert!(matches!(answer(503), Ended::Retry { .. }));
        assert!(matches!(answer(404), Ended::Fatal(_)));
    }

    #[test]
    fn the_period_is_a_prefix_of_the_nominal_time() {
        let time = "2026-01-31T23:00:00Z";
        assert_eq!(Period::Month.of(time), Ok("2026-01"));
        assert_eq!(Period::Day.of(time), Ok("2026-01-31"));
        assert_eq!(Period::Hour.of(time), Ok("2026-01-31T23"));
        assert!(Period::Hour.of("2026").is_err());
    }
}
