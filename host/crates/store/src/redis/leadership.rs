//! Who may publish.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{PodAddress, PodRef, SessionId, Term};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Leader;

use super::RedisStore;
use super::codec::{corrupt, text, texts};
use super::errors::broken;
use super::script::{Call, Verb, px};
use crate::error::Result;
use crate::leadership::{Campaign, Leadership, Renewal, TermRef};

impl RedisStore {
    async fn renewal(&self, call: Call) -> Result<Renewal> {
        let answer = self.call(call).await?;
        match answer.word()? {
            "renewed" => Ok(Renewal::Renewed),
            "lost" => Ok(Renewal::Lost),
            other => Err(answer.strange(other)),
        }
    }
}

#[async_trait]
impl Leadership for RedisStore {
    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.execution_log(),
        ];
        let answer = self
            .call(Call::new(Verb::Campaign, keys).pod(me).arg(px(ttl)))
            .await?;
        match answer.word()? {
            "won" => Ok(Campaign::Won(Term(answer.number(1)?))),
            "held" => Ok(Campaign::Held {
                by: answer.id(1)?,
                expires_in: Duration::from_millis(answer.number(2)?),
            }),
            other => Err(answer.strange(other)),
        }
    }

    async fn renew(&self, me: &TermRef, ttl: Duration) -> Result<Renewal> {
        let keys = vec![self.keys.leader(), self.keys.term()];
        self.renewal(Call::new(Verb::Renew, keys).term(me).arg(px(ttl)))
            .await
    }

    async fn resign(&self, me: &TermRef) -> Result<Renewal> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.execution_log(),
            self.keys.control(),
        ];
        self.renewal(Call::new(Verb::Resign, keys).term(me)).await
    }

    async fn leader(&self) -> Result<Option<Leader>> {
        const VERB: &str = "leader";
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("GET").arg(self.keys.leader());
        pipe.cmd("PTTL").arg(self.keys.leader());
        pipe.cmd("HMGET")
            .arg(self.keys.term())
            .arg(&["term", "holder", "since"]);
        let answers = self.pipeline(VERB, &pipe).await?;
        let [address, left, held] = answers.as_slice() else {
            return Err(broken(VERB, "not three answers"));
        };
        let Some(address) = text(address) else {
            return Ok(None);
        };
        let bad = || corrupt(self.keys.term(), "a term");
        let held = texts(held);
        let [Some(term), Some(holder), Some(since)] = held.as_slice() else {
            return Err(bad()(format!("nothing of the leader {address}")));
        };
        let (holder, session) = holder.split_once('|').unwrap_or((holder, ""));
        if holder != address {
            return Err(bad()(format!(
                "the leader is {address}, the holder {holder}"
            )));
        }
        let address: PodAddress = address.parse().map_err(|_| bad()(address.clone()))?;
        let session: SessionId = session.parse().map_err(|_| bad()(session.to_owned()))?;
        let left = text(left).and_then(|ms| ms.parse().ok()).unwrap_or(0);
        Ok(Some(Leader {
            pod: PodRef { address, session },
            term: term.parse().map_err(|_| bad()(term.clone()))?,
            since: Timestamp::from_millis(since.parse().unwrap_or(0)),
            expires_in: Duration::from_millis(left),
        }))
    }
}
