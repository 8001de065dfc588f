//! What a call would say to its provider, before anything of it is sent.

use crate::dialects::{self, ApprovalMark, Call, OutboundRequest, agent_provider};
use crate::domain::fingerprint::{Fingerprinted, fingerprint};
use crate::domain::ids::OperationId;
use crate::domain::json::JsonText;
use crate::domain::operation::{OperationIntent, OperationMark};
use crate::domain::run::Run;
use crate::domain::trace::TraceContext;
use crate::engine::Engine;
use crate::engine::catalog::{Catalog, CatalogTool};
use serde_json::Value;

/// A run and everything its call is made of.
pub(in crate::engine) struct Plan<'a> {
    pub(in crate::engine) engine: &'a Engine,
    pub(in crate::engine) catalog: &'a Catalog,
    pub(in crate::engine) tool: &'a CatalogTool,
    pub(in crate::engine) run: &'a Run,
    /// The yes a person gave.
    pub(in crate::engine) approval: &'a ApprovalMark,
    pub(in crate::engine) traceparent: Option<&'a str>,
}

impl Plan<'_> {
    /// What is fixed about the operation of this call; `None` where there are no receipts.
    pub(in crate::engine) fn operation_intent(&self) -> Option<OperationIntent> {
        let terms = self.tool.spec.provider.clone().filter(|_| self.tool.spec.mutating)?;
        let (intent, trace_id) = (&self.run.intent, self.trace_id());
        let id = OperationId::from_uuid(self.engine.clock().new_uuid());
        let arguments: Value = serde_json::from_str(intent.arguments().as_str()).expect("valid arguments are JSON");
        let fingerprint = fingerprint(Fingerprinted {
            arguments: &arguments,
            contract_version: &terms.contract_version,
            subject: agent_provider::subject_id(intent.caller.as_deref()),
            tool: &self.tool.spec.provider_name,
            workspace: &self.catalog.org.slug,
        });
        let mark = OperationMark { id, fingerprint };
        let request = self.encode_under(&trace_id, Some(&mark));
        let body = std::str::from_utf8(&request.body).ok().and_then(|text| JsonText::parse(text).ok());
        Some(OperationIntent {
            mark,
            org_id: intent.org_id,
            run_id: intent.id,
            endpoint_id: intent.endpoint_id,
            origin: self.tool.endpoint.settings.base_url.clone(),
            provider_tool: self.tool.spec.provider_name.clone(),
            terms,
            body: body.expect("the body of a call is JSON"),
            trace_id,
            locale: intent.context.locale.clone(),
            timezone: intent.context.timezone.clone(),
            timeout: self.tool.timeout,
            created_at: self.engine.clock().now(),
        })
    }

    /// The request, unsigned.
    pub(in crate::engine) fn encode(&self) -> OutboundRequest {
        if self.tool.spec.provider.is_some() {
            self.encode_under(&self.trace_id(), None)
        } else {
            // Nobody else is told which trace it is in but by `traceparent`.
            self.encode_under("", None)
        }
    }

    fn encode_under(&self, trace_id: &str, operation: Option<&OperationMark>) -> OutboundRequest {
        let (endpoint, intent) = (&self.tool.endpoint, &self.run.intent);
        // Where the answer comes at once there is no other to be delivered.
        let at_once = self.tool.answers_at_once();
        let callback_url = if at_once { String::new() } else { self.engine.callback_url(endpoint.id) };
        let call = Call {
            run_id: intent.id,
            tool: &self.tool.spec,
            arguments: intent.arguments(),
            caller: intent.caller.as_deref(),
            conversation: intent.context.conversation.as_deref(),
            callback_url: &callback_url,
            approval: self.approval,
            workspace: &self.catalog.org.slug,
            turn: intent.context.turn.as_deref(),
            locale: intent.context.locale.as_deref(),
            timezone: intent.context.timezone.as_deref(),
            now: self.engine.clock().now(),
            trace_id,
            operation,
        };
        dialects::encode_call(endpoint, &call)
    }

    /// The trace of the request the call comes from, or one of its own.
    fn trace_id(&self) -> String {
        let random = || {
            let mut random = [0; 24];
            self.engine.clock().fill_random(&mut random);
            TraceContext::new(random)
        };
        self.traceparent.and_then(TraceContext::parse).unwrap_or_else(random).trace_id_hex()
    }
}
