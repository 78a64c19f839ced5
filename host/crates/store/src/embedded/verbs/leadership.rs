//! Who may publish.

use std::time::Duration;

use wasmcron_core::ids::{PodRef, Term};
use wasmcron_core::time::millis;
use wasmcron_core::view::Leader;

use super::Call;
use super::base::px;
use crate::control::Wake;
use crate::embedded::engine::{Key, Tx};
use crate::embedded::records::Leadership;
use crate::error::Result;
use crate::leadership::{Campaign, Renewal, TermRef};

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn campaign(&mut self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        let (key, ttl, now) = (Key::named(""), px(ttl), self.now);
        let held = self.good::<Leadership>(&key)?;
        if let Some(held) = &held
            && let Some(until) = self.lease(held)
        {
            let mut held = Leadership::clone(held);
            if held.holder == *me {
                held.ttl = millis(ttl);
                held.until = Some(now + ttl);
                let term = held.term;
                self.tx.put(key, held)?;
                return Ok(Campaign::Won(term));
            }
            // A lease that a clock stepping back made long must not last.
            let longest = Duration::from_millis(u64::try_from(held.ttl).unwrap_or(1));
            let (by, left) = (held.holder.address.clone(), until.since(now));
            if left > longest {
                held.until = Some(now + longest);
                self.tx.put(key, held)?;
            }
            let expires_in = left.min(longest);
            return Ok(Campaign::Held { by, expires_in });
        }
        let last = held.as_ref().map_or(0, |held| held.term.0);
        let clock = u64::try_from(now.as_millis()).unwrap_or(0);
        let term = Term(last.saturating_add(1).max(clock));
        let leadership = Leadership {
            term,
            holder: me.clone(),
            since: now,
            ttl: millis(ttl),
            until: Some(now + ttl),
            resigned: held.and_then(|held| held.resigned.clone()),
        };
        self.tx.put(key, leadership)?;
        let facts = [("pod", (&me.address).into()), ("term", term.0.into())];
        self.log("leader.won", None, None, facts)?;
        Ok(Campaign::Won(term))
    }

    pub(in crate::embedded) fn renew(&mut self, me: &TermRef, ttl: Duration) -> Result<Renewal> {
        if !self.leads(me)? {
            return Ok(Renewal::Lost);
        }
        let ttl = px(ttl);
        let until = self.now + ttl;
        self.change_lease(|held| {
            held.ttl = millis(ttl);
            held.until = Some(until);
        })?;
        Ok(Renewal::Renewed)
    }

    pub(in crate::embedded) fn resign(&mut self, me: &TermRef) -> Result<Renewal> {
        let mine = Some((me.pod.clone(), me.term));
        if !self.leads(me)? {
            let held = self.good::<Leadership>(&Key::named(""))?;
            let repeated = held.is_some_and(|held| held.resigned == mine);
            return Ok(if repeated {
                Renewal::Renewed
            } else {
                Renewal::Lost
            });
        }
        self.change_lease(|held| {
            held.resigned = mine;
            held.until = None;
        })?;
        let facts = [
            ("pod", (&me.pod.address).into()),
            ("term", me.term.0.into()),
        ];
        self.log("leader.resigned", None, None, facts)?;
        self.tx.wake(Wake::LeaderFree);
        Ok(Renewal::Renewed)
    }

    fn change_lease(&mut self, change: impl FnOnce(&mut Leadership)) -> Result<()> {
        let key = Key::named("");
        if let Some(held) = self.good::<Leadership>(&key)? {
            let mut held = Leadership::clone(&held);
            change(&mut held);
            self.tx.put(key, held)?;
        }
        Ok(())
    }

    pub(in crate::embedded) fn leader(&mut self) -> Result<Option<Leader>> {
        let Some(held) = self.tx.get::<Leadership>(&Key::named(""))? else {
            return Ok(None);
        };
        Ok(self.lease(&held).map(|until| Leader {
            pod: held.holder.clone(),
            term: held.term,
            since: held.since,
            expires_in: until.since(self.now),
        }))
    }
}
