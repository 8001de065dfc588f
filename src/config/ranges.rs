//! What every number of the configuration may be: one table.

const DAY_MS: u64 = 86_400_000;
const MAX_RATE: u64 = 1_000_000;
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;
const MAX_TRACKED: u64 = 10_000_000;

/// Key, least, most. A test holds that every number of the defaults stands here, and nothing else.
pub(super) const RANGES: &[(&str, u64, u64)] = &[
    ("server.workers", 0, 1024),
    ("metrics.max_orgs", 1, 10_000),
    ("limits.organization_per_second", 1, MAX_RATE),
    ("limits.organization_per_second_burst", 1, MAX_RATE),
    ("limits.agent_key_per_second", 1, MAX_RATE),
    ("limits.agent_key_per_second_burst", 1, MAX_RATE),
    ("limits.tool_per_second", 1, MAX_RATE),
    ("limits.tool_per_second_burst", 1, MAX_RATE),
    ("limits.caller_per_second", 1, MAX_RATE),
    ("limits.caller_per_second_burst", 1, MAX_RATE),
    ("limits.endpoint_in_flight", 1, 65_536),
    ("limits.max_endpoints", 1, 10_000),
    ("limits.max_tools", 1, 100_000),
    ("limits.pending_ttl_ms", 1, DAY_MS),
    ("limits.approval_ttl_ms", 1, DAY_MS),
    ("limits.confirmation_ttl_ms", 1, DAY_MS),
    ("limits.reviewer_timeout_ms", 1, 600_000),
    ("limits.sync_interval_s", 0, 86_400),
    ("limits.run_body_bytes", 64, MAX_BODY_BYTES),
    ("limits.callback_body_bytes", 64, MAX_BODY_BYTES),
    ("limits.api_body_bytes", 64, MAX_BODY_BYTES),
    ("limits.provider_response_bytes", 64, MAX_BODY_BYTES),
    ("limits.manifest_bytes", 64, MAX_BODY_BYTES),
    ("limits.header_block_bytes", 1024, 1024 * 1024),
    ("limits.connect_timeout_ms", 1, 60_000),
    ("limits.manifest_fetch_timeout_ms", 1, 60_000),
    ("limits.run_timeout_ms", 1, 60_000),
    ("limits.callers_tracked", 1, MAX_TRACKED),
    ("limits.conversations_tracked", 1, MAX_TRACKED),
    ("limits.listen_streams", 1, MAX_TRACKED),
    ("limits.unauthorized_per_second", 1, MAX_RATE),
    ("limits.unauthorized_per_second_burst", 1, MAX_RATE),
    ("limits.mailbox_capacity", 1, MAX_RATE),
    ("retention.run_retention_h", 1, 87_600),
    ("retention.result_retention_h", 0, 87_600),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::documented_keys;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_has_its_range_and_every_range_its_number() {
        let keys = documented_keys();
        let numbers: BTreeSet<_> =
            keys.iter().filter(|key| key.default.parse::<i64>().is_ok()).map(|key| key.key.as_str()).collect();
        let ranges: BTreeSet<_> = RANGES.iter().map(|(key, ..)| *key).collect();
        assert_eq!(numbers, ranges);
        assert_eq!(ranges.len(), RANGES.len(), "a key stands twice");
    }
}
