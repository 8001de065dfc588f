//! Where an organization's signed messages go: sealed as a whole, in a table of their own.

use super::rows;
use super::{Db, bytes, place};
use crate::domain::ids::OrgId;
use crate::domain::org::{Hook, Org};
use crate::domain::secret::Secret;
use crate::engine::store_port::StoreResult;
use serde::{Deserialize, Serialize};

const DOC: &str = "hooks.doc";

#[derive(Serialize, Deserialize)]
struct HookDoc {
    url: String,
    secret: String,
}

impl HookDoc {
    fn of(hook: &Hook) -> Self {
        Self { url: hook.url.clone(), secret: hook.secret.reveal().to_owned() }
    }

    fn hook(self) -> Hook {
        Hook { url: self.url, secret: Secret::new(self.secret) }
    }
}

#[derive(Serialize, Deserialize)]
struct HooksDoc {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reviewer: Option<HookDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook: Option<HookDoc>,
}

/// The reviewer and the result webhook of an organization.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) reviewer: Option<Hook>,
    pub(super) webhook: Option<Hook>,
}

/// Opens what was read of the table.
pub(super) fn open(db: &Db<'_>, org: OrgId, sealed: Option<&[u8]>) -> StoreResult<Hooks> {
    let Some(sealed) = sealed else { return Ok(Hooks::default()) };
    let doc: HooksDoc = rows::from_text("organization", &db.open_sealed(sealed, DOC, org.uuid())?)?;
    Ok(Hooks { reviewer: doc.reviewer.map(HookDoc::hook), webhook: doc.webhook.map(HookDoc::hook) })
}

/// Stores what an organization has by now.
pub(super) fn put(db: &Db<'_>, org: &Org) -> StoreResult<()> {
    if org.reviewer.is_none() && org.webhook.is_none() {
        return delete(db, org.id);
    }
    let doc =
        HooksDoc { reviewer: org.reviewer.as_ref().map(HookDoc::of), webhook: org.webhook.as_ref().map(HookDoc::of) };
    let sealed = db.secrets.seal(rows::to_text(&doc).as_bytes(), &place(DOC, org.id.uuid()));
    db.execute(
        "INSERT INTO hooks (org_id, doc) VALUES (?1, ?2) ON CONFLICT (org_id) DO UPDATE SET doc = excluded.doc",
        (bytes(org.id.uuid()), sealed),
    )?;
    Ok(())
}

pub(super) fn delete(db: &Db<'_>, org: OrgId) -> StoreResult<()> {
    db.execute("DELETE FROM hooks WHERE org_id = ?1", (bytes(org.uuid()),))?;
    Ok(())
}
