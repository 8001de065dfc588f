//! The tools of a small web shop: what the demo's providers offer, and what they do when they are called.

mod orders;

pub use orders::agent_tools;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a tool does: arguments in, a result or a failure out.
pub type Work = Arc<dyn Fn(&Value) -> Result<Value, WorkFault> + Send + Sync>;

/// Why a tool could not do it, in the provider's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkFault {
    /// A word for programs.
    pub code: String,
    /// A sentence for the agent.
    pub message: String,
}

impl WorkFault {
    /// A failure with this word and sentence.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// As both protocols write it.
    pub fn to_json(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }
}

/// One tool of a provider.
#[derive(Clone)]
pub struct ProviderTool {
    /// The item of the manifest, as its protocol writes it.
    pub declaration: Value,
    /// What it does.
    pub work: Work,
}

impl ProviderTool {
    /// A tool with this manifest item that does this.
    pub fn new(declaration: Value, work: impl Fn(&Value) -> Result<Value, WorkFault> + Send + Sync + 'static) -> Self {
        Self { declaration, work: Arc::new(work) }
    }

    /// A text member of the manifest item; empty when it has none.
    pub fn text(&self, member: &str) -> &str {
        self.declaration.get(member).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Back-office automations, for the topology provider: one command and one query.
pub fn topology_tools() -> Vec<ProviderTool> {
    let newsletter = json!({
        "id": "topology:send-newsletter",
        "title": "Send newsletter",
        "description": "Sends the current newsletter to one group of customers.",
        "kind": "command",
        "input_schema": {
            "type": "object",
            "properties": { "audience": { "type": "string", "enum": ["everyone", "regulars"] } },
            "required": ["audience"],
            "additionalProperties": false
        }
    });
    let report = json!({
        "id": "topology:sales-report",
        "title": "Sales report",
        "description": "Adds up the orders of the last days.",
        "kind": "query",
        "input_schema": {
            "type": "object",
            "properties": { "days": { "type": "integer", "minimum": 1, "maximum": 90 } },
            "required": ["days"],
            "additionalProperties": false
        },
        "output_schema": { "type": "object", "required": ["orders", "revenue"] }
    });
    vec![
        ProviderTool::new(newsletter, |arguments| Ok(json!({ "queued_for": arguments["audience"] }))),
        ProviderTool::new(report, sales_report),
    ]
}

/// Twelve orders a day at 49 euros: a shop that is easy to check.
fn sales_report(arguments: &Value) -> Result<Value, WorkFault> {
    let days = arguments["days"].as_u64().ok_or_else(|| WorkFault::new("bad_days", "days must be an integer"))?;
    let orders = 12 * days;
    Ok(
        json!({ "days": days, "orders": orders, "revenue": { "amount": format!("{}.00", orders * 49), "currency": "EUR" } }),
    )
}

/// Customer service, for the median provider: one tool of each risk.
pub fn median_tools() -> Vec<ProviderTool> {
    let order_number = json!({
        "type": "object",
        "properties": { "orderNumber": { "type": "string", "description": "Such as ORD-1042." } },
        "required": ["orderNumber"],
        "additionalProperties": false
    });
    let status = json!({
        "name": "orderStatus",
        "description": "Tells where an order is.",
        "risk": "low",
        "inputSchema": order_number
    });
    let note = json!({
        "name": "addNote",
        "description": "Notes something about an order, for its packers.",
        "risk": "medium",
        "inputSchema": {
            "type": "object",
            "properties": { "orderNumber": { "type": "string" }, "note": { "type": "string" } },
            "required": ["orderNumber", "note"],
            "additionalProperties": false
        }
    });
    let refund = json!({
        "name": "refundOrder",
        "description": "Pays an order back in full.",
        "risk": "reviewed",
        "inputSchema": order_number
    });
    let close = json!({
        "name": "closeAccount",
        "description": "Closes a customer's account for good.",
        "risk": "high",
        "inputSchema": {
            "type": "object",
            "properties": { "customer": { "type": "string" } },
            "required": ["customer"],
            "additionalProperties": false
        }
    });
    vec![
        ProviderTool::new(status, |arguments| match arguments["orderNumber"].as_str() {
            Some("ORD-1042") => Ok(json!({ "orderNumber": "ORD-1042", "status": "shipped", "carrier": "DHL" })),
            _ => Err(WorkFault::new("execution_failed", "There is no order of this number.")),
        }),
        ProviderTool::new(note, |arguments| Ok(json!({ "noted": arguments["note"] }))),
        ProviderTool::new(refund, |arguments| Ok(json!({ "refunded": arguments["orderNumber"] }))),
        ProviderTool::new(close, |arguments| Ok(json!({ "closed": arguments["customer"] }))),
    ]
}

/// The catalogue, for the MCP provider: one tool that reads, one that changes something.
pub fn mcp_tools() -> Vec<ProviderTool> {
    let search = json!({
        "name": "search_products",
        "title": "Search products",
        "description": "Finds products by words of their names.",
        "inputSchema": {
            "type": "object",
            "properties": { "words": { "type": "string" } },
            "required": ["words"],
            "additionalProperties": false
        },
        "annotations": { "readOnlyHint": true }
    });
    let reserve = json!({
        "name": "reserve_product",
        "title": "Reserve a product",
        "description": "Keeps some of a product aside for a day.",
        "inputSchema": {
            "type": "object",
            "properties": { "sku": { "type": "string" }, "quantity": { "type": "integer", "minimum": 1 } },
            "required": ["sku", "quantity"],
            "additionalProperties": false
        },
        "annotations": { "readOnlyHint": false, "destructiveHint": false }
    });
    vec![
        ProviderTool::new(search, |arguments| {
            let words = arguments["words"].as_str().unwrap_or_default().to_lowercase();
            let products = [("SKU-7", "Blue teapot", "39.00"), ("SKU-8", "Tea strainer", "9.50")];
            let found = products.iter().filter(|(_, name, _)| name.to_lowercase().contains(&words));
            let shown = found.map(|(sku, name, price)| json!({ "sku": sku, "name": name, "price": price }));
            Ok(json!({ "products": shown.collect::<Vec<_>>() }))
        }),
        ProviderTool::new(reserve, |arguments| Ok(json!({ "reserved": arguments["quantity"] }))),
    ]
}
