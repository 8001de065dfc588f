//! The documents of tools and of what a tenant sets about them.

use super::corrupt;
use super::rows::millis;
use crate::domain::evidence::EvidenceKind;
use crate::domain::json::JsonText;
use crate::domain::risk::Risk;
use crate::domain::tool::{HeaderParam, McpTool, ProviderTerms, ToolKind, ToolPolicy, ToolSpec};
use crate::engine::store_port::StoreResult;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
pub(super) struct SpecDoc {
    name: String,
    provider_name: String,
    title: Option<String>,
    description: Option<String>,
    kind: String,
    input_schema: Box<RawValue>,
    /// The schema may be `false` or `true`, never `null`.
    output_schema: Option<Box<RawValue>>,
    risk: Option<String>,
    requires_confirmation: bool,
    llm_format: bool,
    mutating: bool,
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderTermsDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mcp: Option<McpToolDoc>,
    hash: String,
}

impl SpecDoc {
    pub(super) fn of(spec: &ToolSpec) -> Self {
        Self {
            name: spec.name.clone(),
            provider_name: spec.provider_name.clone(),
            title: spec.title.clone(),
            description: spec.description.clone(),
            kind: spec.kind.as_str().to_owned(),
            input_schema: spec.input_schema.raw().to_owned(),
            output_schema: spec.output_schema.as_ref().map(|schema| schema.raw().to_owned()),
            risk: spec.risk.map(|risk| risk.as_str().to_owned()),
            requires_confirmation: spec.requires_confirmation,
            llm_format: spec.llm_format,
            mutating: spec.mutating,
            timeout_ms: spec.timeout.map(millis),
            provider: spec.provider.as_deref().map(ProviderTermsDoc::of),
            mcp: spec.mcp.as_deref().map(McpToolDoc::of),
            hash: spec.hash.clone(),
        }
    }

    pub(super) fn spec(self) -> StoreResult<ToolSpec> {
        Ok(ToolSpec {
            name: self.name,
            provider_name: self.provider_name,
            title: self.title,
            description: self.description,
            kind: ToolKind::parse(&self.kind).ok_or_else(|| corrupt("tool"))?,
            input_schema: self.input_schema.into(),
            output_schema: self.output_schema.map(JsonText::from),
            risk: parse_risk(self.risk)?,
            requires_confirmation: self.requires_confirmation,
            llm_format: self.llm_format,
            mutating: self.mutating,
            timeout: self.timeout_ms.map(Duration::from_millis),
            provider: self.provider.map(ProviderTermsDoc::terms).transpose()?.map(Arc::new),
            mcp: self.mcp.map(McpToolDoc::tool).map(Arc::new),
            hash: self.hash,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ProviderTermsDoc {
    contract_version: String,
    languages: Vec<String>,
    produces_evidence: Vec<String>,
    action: Option<String>,
    receipt_retention_s: Option<u64>,
}

impl ProviderTermsDoc {
    pub(super) fn of(terms: &ProviderTerms) -> Self {
        Self {
            contract_version: terms.contract_version.clone(),
            languages: terms.languages.clone(),
            produces_evidence: terms.produces_evidence.words().map(str::to_owned).collect(),
            action: terms.action.clone(),
            receipt_retention_s: terms.receipt_retention.map(|retention| retention.as_secs()),
        }
    }

    pub(super) fn terms(self) -> StoreResult<ProviderTerms> {
        let kinds = self.produces_evidence.iter().map(|word| EvidenceKind::parse(word)).collect::<Option<_>>();
        Ok(ProviderTerms {
            contract_version: self.contract_version,
            languages: self.languages,
            produces_evidence: kinds.ok_or_else(|| corrupt("tool"))?,
            action: self.action,
            receipt_retention: self.receipt_retention_s.map(Duration::from_secs),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct McpToolDoc {
    declared: Box<RawValue>,
    read_only: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    header_params: Vec<HeaderParamDoc>,
}

#[derive(Serialize, Deserialize)]
struct HeaderParamDoc {
    path: Vec<String>,
    name: String,
}

impl McpToolDoc {
    fn of(tool: &McpTool) -> Self {
        let param = |param: &HeaderParam| HeaderParamDoc { path: param.path.clone(), name: param.name.clone() };
        Self {
            declared: tool.declared.raw().to_owned(),
            read_only: tool.read_only,
            header_params: tool.header_params.iter().map(param).collect(),
        }
    }

    fn tool(self) -> McpTool {
        let param = |doc: HeaderParamDoc| HeaderParam { path: doc.path, name: doc.name };
        McpTool {
            declared: self.declared.into(),
            read_only: self.read_only,
            header_params: self.header_params.into_iter().map(param).collect(),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct PolicyDoc {
    risk: Option<String>,
    requires_confirmation: Option<bool>,
    timeout_ms: Option<u64>,
    pending_ttl_ms: Option<u64>,
    accepted_hash: Option<String>,
}

impl PolicyDoc {
    pub(super) fn of(policy: &ToolPolicy) -> Self {
        Self {
            risk: policy.risk.map(|risk| risk.as_str().to_owned()),
            requires_confirmation: policy.requires_confirmation,
            timeout_ms: policy.timeout.map(millis),
            pending_ttl_ms: policy.pending_ttl.map(millis),
            accepted_hash: policy.accepted_hash.clone(),
        }
    }

    pub(super) fn policy(self) -> StoreResult<ToolPolicy> {
        Ok(ToolPolicy {
            risk: parse_risk(self.risk)?,
            requires_confirmation: self.requires_confirmation,
            timeout: self.timeout_ms.map(Duration::from_millis),
            pending_ttl: self.pending_ttl_ms.map(Duration::from_millis),
            accepted_hash: self.accepted_hash,
        })
    }
}

fn parse_risk(word: Option<String>) -> StoreResult<Option<Risk>> {
    word.map(|word| Risk::parse(&word).ok_or_else(|| corrupt("tool"))).transpose()
}
