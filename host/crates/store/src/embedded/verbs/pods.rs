//! Which pods live, and what they say of themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wasmcron_core::ids::{PodAddress, PodRef, SessionId};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Pod, PodLoad, PodReport};

use super::Call;
use super::base::px;
use crate::control::Wake;
use crate::embedded::engine::{Found, Key, Range, Tx};
use crate::embedded::records::{Claiming, PodRecord, Queued, Report, Running, Said, Scheduled};
use crate::error::Result;
use crate::leadership::TermRef;
use crate::pods::{Draining, Forgotten, Standing};
use crate::schedule::PAGE_MAX;

/// How long what a pod said is kept before its first heartbeat.
const FIRST_KEPT: Duration = Duration::from_secs(600);
/// After so many windows of silence a pod may be forgotten.
const WINDOWS_KEPT: u32 = 10;

/// Which report: by the session that made it and its number there.
type Version = (SessionId, i64);

/// The latest report read of each pod, so that each is decoded once: it names every job file of its
/// pod, and the leader asks several times a second.
#[derive(Default)]
pub(in crate::embedded) struct Reports(Mutex<HashMap<PodAddress, (Version, Arc<PodReport>)>>);

impl Reports {
    fn get(&self, pod: &PodAddress, version: &Version) -> Option<Arc<PodReport>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, report) = known.get(pod)?;
        (kept == version).then(|| report.clone())
    }

    /// Keeps what a reading of all pods found, and nothing of pods that are gone.
    fn replace(&self, known: HashMap<PodAddress, (Version, Arc<PodReport>)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn register(
        &mut self,
        me: &PodRef,
        started: Timestamp,
        report: Arc<PodReport>,
    ) -> Result<Standing> {
        let key = Key::named(me.address.as_str());
        let record = self.good::<PodRecord>(&key)?;
        let mut pod = record.map_or_else(PodRecord::default, |record| PodRecord::clone(&record));
        let known = self.said(&pod).cloned();
        let last = pod.said.take().map_or(0, |said| said.version);
        let mut same = None;
        if let Some(known) = known {
            if known.session == me.session {
                same = Some(known);
            } else if (known.started, &known.session) > (started, &me.session) {
                return Ok(Standing::Superseded);
            }
        }
        let version = self.put_report(&key, same.as_ref(), last, report)?;
        let (load, draining, leave) = same.map_or((None, false, None), |said| {
            (said.load, said.draining, said.leave)
        });
        pod.said = Some(Said {
            session: me.session.clone(),
            started,
            version,
            load,
            draining,
            left: false,
            leave,
            expires_at: self.now + FIRST_KEPT,
        });
        self.tx.put(key, pod)?;
        Ok(Standing::Current { now: self.now })
    }

    /// Keeps a report and answers its number: that of the one before if the pod says the same.
    fn put_report(
        &mut self,
        key: &Key,
        same: Option<&Said>,
        last: i64,
        report: Arc<PodReport>,
    ) -> Result<i64> {
        if let Some(same) = same {
            let before = self.good::<Report>(key)?;
            if before.is_some_and(|before| *before.0 == *report) {
                return Ok(same.version);
            }
        }
        self.tx.put(key.clone(), Report(report))?;
        Ok(last.saturating_add(1).max(self.now.as_millis()))
    }

    /// Changes what the current session of an address said.
    fn change_said(
        &mut self,
        me: &PodRef,
        change: impl FnOnce(&mut PodRecord, &mut Said),
    ) -> Result<Standing> {
        let key = Key::named(me.address.as_str());
        let Some(record) = self.good::<PodRecord>(&key)? else {
            return Ok(Standing::Unknown);
        };
        let Some(said) = self.said(&record) else {
            return Ok(Standing::Unknown);
        };
        if said.session != me.session {
            return Ok(Standing::Superseded);
        }
        let (mut pod, mut said) = (PodRecord::clone(&record), said.clone());
        change(&mut pod, &mut said);
        pod.said = Some(said);
        self.tx.put(key, pod)?;
        Ok(Standing::Current { now: self.now })
    }

    pub(in crate::embedded) fn report(
        &mut self,
        me: &PodRef,
        report: Arc<PodReport>,
    ) -> Result<Standing> {
        match self.is_current(&me.address, &me.session)? {
            None => return Ok(Standing::Unknown),
            Some(false) => return Ok(Standing::Superseded),
            Some(true) => {}
        }
        let key = Key::named(me.address.as_str());
        let record = self.good::<PodRecord>(&key)?;
        let same = record.and_then(|record| self.said(&record).cloned());
        let last = same.as_ref().map_or(0, |said| said.version);
        let version = self.put_report(&key, same.as_ref(), last, report)?;
        self.change_said(me, |_, said| said.version = version)
    }

    pub(in crate::embedded) fn heartbeat(
        &mut self,
        me: &PodRef,
        load: PodLoad,
        window: Duration,
    ) -> Result<Standing> {
        let now = self.now;
        let mut leave = None;
        let standing = self.change_said(me, |pod, said| {
            if !said.left {
                pod.beat = Some(now);
            }
            said.draining = load.draining || said.leave.is_some();
            said.load = Some(load);
            said.expires_at = now + px(window.saturating_mul(WINDOWS_KEPT));
            leave.clone_from(&said.leave);
        })?;
        Ok(match (standing, leave) {
            (Standing::Current { now }, Some(by)) => Standing::AskedToLeave { now, by },
            (standing, _) => standing,
        })
    }

    pub(in crate::embedded) fn drain(&mut self, pod: &PodAddress, by: String) -> Result<Draining> {
        let key = Key::named(pod.as_str());
        let Some(record) = self.good::<PodRecord>(&key)? else {
            return Ok(Draining::Unknown);
        };
        let Some(said) = self.said(&record) else {
            return Ok(Draining::Unknown);
        };
        if said.draining || said.left {
            return Ok(Draining::Leaving);
        }
        let mut said = said.clone();
        said.draining = true;
        said.leave = Some(by.clone());
        let mut record = PodRecord::clone(&record);
        record.said = Some(said);
        self.tx.put(key, record)?;
        let facts = [("pod", pod.into()), ("by", by.into())];
        self.log("pod.asked-to-leave", None, None, facts)?;
        Ok(Draining::Asked)
    }

    pub(in crate::embedded) fn leave(&mut self, me: &PodRef) -> Result<Standing> {
        let pod = &me.address;
        if self.is_current(pod, &me.session)? == Some(false) {
            return Ok(Standing::Superseded);
        }
        let key = Key::named(pod.as_str());
        if let Some(record) = self.good::<PodRecord>(&key)? {
            let current = self.said(&record).is_some();
            let mut record = PodRecord::clone(&record);
            record.beat = None;
            if let Some(said) = record.said.as_mut().filter(|_| current) {
                said.left = true;
                said.draining = true;
            }
            self.tx.put(key, record)?;
        }
        self.drop_queues(pod)?;
        self.tx.wake(Wake::Left { pod: pod.clone() });
        Ok(Standing::Current { now: self.now })
    }

    fn drop_queues(&mut self, pod: &PodAddress) -> Result<()> {
        self.remove_all::<Queued>(pod.as_str())?;
        self.remove_all::<Claiming>(pod.as_str())
    }

    /// Whether a register names a pod.
    pub(in crate::embedded) fn is_named(&mut self, pod: &PodAddress) -> Result<bool> {
        let mut range = Range::all("");
        loop {
            let page = self.tx.scan::<Scheduled>(&range, PAGE_MAX)?;
            let names =
                |found: &Found<Scheduled>| matches!(found, Found::Good(entry) if entry.pod == *pod);
            if page.iter().any(|(_, found)| names(found)) {
                return Ok(true);
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_MAX => range = range.after(0, &key.name),
                _ => break,
            }
        }
        let mut range = Range::all("");
        loop {
            let page = self.tx.scan::<Running>(&range, PAGE_MAX)?;
            let names =
                |found: &Found<Running>| matches!(found, Found::Good(entry) if entry.pod == *pod);
            if page.iter().any(|(_, found)| names(found)) {
                return Ok(true);
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_MAX => range = range.after(0, &key.name),
                _ => return Ok(false),
            }
        }
    }

    pub(in crate::embedded) fn forget(
        &mut self,
        term: &TermRef,
        pod: &PodAddress,
        window: Duration,
    ) -> Result<Forgotten> {
        if !self.leads(term)? {
            return Ok(Forgotten::NotLeader);
        }
        let key = Key::named(pod.as_str());
        if let Some(record) = self.good::<PodRecord>(&key)? {
            let silent = px(window.saturating_mul(WINDOWS_KEPT));
            let in_use = match record.beat {
                // A heartbeat from the future is recent.
                Some(beat) => beat > self.now || self.now.since(beat) < silent,
                // It registered just now, its first heartbeat comes.
                None => self.said(&record).is_some_and(|said| !said.left),
            };
            if in_use {
                return Ok(Forgotten::InUse);
            }
        }
        self.tx.remove::<PodRecord>(&key)?;
        self.tx.remove::<Report>(&key)?;
        self.drop_queues(pod)?;
        Ok(Forgotten::Forgotten)
    }

    pub(in crate::embedded) fn pods(&mut self, reports: &Reports) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        let mut known = HashMap::new();
        let mut range = Range::all("");
        loop {
            let page = self.tx.scan::<PodRecord>(&range, PAGE_MAX)?;
            for (key, found) in &page {
                // What is no address cannot be a pod.
                if let Ok(address) = key.name.parse::<PodAddress>() {
                    let pod = self.pod(key, address, found, reports, &mut known)?;
                    pods.push(pod);
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_MAX => range = range.after(0, &key.name),
                _ => break,
            }
        }
        reports.replace(known);
        Ok(pods)
    }

    fn pod(
        &mut self,
        key: &Key,
        address: PodAddress,
        found: &Found<PodRecord>,
        reports: &Reports,
        known: &mut HashMap<PodAddress, (Version, Arc<PodReport>)>,
    ) -> Result<Pod> {
        let record = match found {
            Found::Good(record) => Some(record),
            Found::Broken { .. } => None,
        };
        let said = record.and_then(|record| self.said(record));
        let mut report = None;
        if let Some(said) = said {
            let version = (said.session.clone(), said.version);
            report = match reports.get(&address, &version) {
                Some(report) => Some(report),
                None => self.good::<Report>(key)?.map(|report| report.0.clone()),
            };
            if let Some(report) = &report {
                known.insert(address.clone(), (version, report.clone()));
            }
        }
        let mut load = said.and_then(|said| said.load.clone()).unwrap_or_default();
        load.draining |= said.is_some_and(|said| said.left || said.leave.is_some());
        let all = Range::all(address.as_str());
        let queued = self.tx.count::<Queued>(&all)? + self.tx.count::<Claiming>(&all)?;
        Ok(Pod {
            session: said.map(|said| said.session.clone()),
            heartbeat: record.and_then(|record| record.beat),
            report,
            load,
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            address,
        })
    }
}
