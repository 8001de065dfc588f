//! The order desk, for the agent-provider: two reads and two mutations over the orders ORD-1000 to ORD-9999.
//!
//! The orders follow from their numbers: every third number is the same customer, odd ones are packed and even ones
//! shipped, and the total is 49 euros an item. Only what the mutations did is kept.

use super::{ProviderTool, WorkFault};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The orders there are.
const NUMBERS: std::ops::RangeInclusive<u32> = 1000..=9999;

/// The price of one item.
const ITEM_CENTS: u64 = 4900;

/// The customers, by order number.
const CUSTOMERS: [&str; 3] = ["amira", "bruno", "chen"];

/// What was done to the orders.
#[derive(Default)]
struct Desk {
    cancelled: HashSet<u32>,
    refunds_cents: HashMap<u32, Vec<u64>>,
}

type SharedDesk = Arc<Mutex<Desk>>;

/// The order desk's tools, with orders of their own.
pub fn agent_tools() -> Vec<ProviderTool> {
    let desk = SharedDesk::default();
    let tool = |declaration: Value, work: fn(&mut Desk, &Value) -> Result<Value, WorkFault>| {
        let desk = Arc::clone(&desk);
        ProviderTool::new(declaration, move |arguments| work(&mut lock(&desk), arguments))
    };
    vec![
        tool(get_declaration(), get),
        tool(search_declaration(), search),
        tool(cancel_declaration(), cancel),
        tool(refund_declaration(), refund),
    ]
}

fn lock(desk: &SharedDesk) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn order_property() -> Value {
    json!({ "type": "string", "description": "An order number such as ORD-1042.", "pattern": "^ORD-[0-9]{4}$" })
}

fn get_declaration() -> Value {
    json!({
        "name": "order.get",
        "description": "Tells all about one order.",
        "mutating": false,
        "produces_evidence": ["entity", "value", "completeness"],
        "timeout_ms": 2000,
        "parameters": {
            "type": "object",
            "properties": { "order": order_property() },
            "required": ["order"],
            "additionalProperties": false
        }
    })
}

fn search_declaration() -> Value {
    json!({
        "name": "orders.search",
        "description": "Lists the newest orders of a customer.",
        "mutating": false,
        "produces_evidence": ["entity", "completeness"],
        "timeout_ms": 5000,
        "parameters": {
            "type": "object",
            "properties": {
                "customer": { "type": "string" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 10 }
            },
            "required": ["customer"],
            "additionalProperties": false
        }
    })
}

fn cancel_declaration() -> Value {
    json!({
        "name": "order.cancel",
        "description": "Cancels an order that has not been shipped.",
        "mutating": true,
        "action": "order_cancelled",
        "produces_evidence": ["entity", "action"],
        "timeout_ms": 5000,
        "parameters": {
            "type": "object",
            "properties": { "order": order_property() },
            "required": ["order"],
            "additionalProperties": false
        }
    })
}

fn refund_declaration() -> Value {
    json!({
        "name": "refund.issue",
        "description": "Pays a part of an order, or all of it, back.",
        "mutating": true,
        "action": "refund_issued",
        "produces_evidence": ["entity", "value", "reference", "action"],
        "timeout_ms": 5000,
        "parameters": {
            "type": "object",
            "properties": {
                "order": order_property(),
                "amount": { "type": "string", "description": "Euros such as 12.50.", "pattern": "^[0-9]{1,6}\\.[0-9]{2}$" }
            },
            "required": ["order", "amount"],
            "additionalProperties": false
        }
    })
}

fn number(arguments: &Value) -> Result<u32, WorkFault> {
    let number = arguments["order"].as_str().and_then(|order| order.strip_prefix("ORD-"));
    let number = number.and_then(|digits| digits.parse().ok()).filter(|number| NUMBERS.contains(number));
    number.ok_or_else(|| WorkFault::new("unknown_order", "There is no order of this number."))
}

fn customer(number: u32) -> &'static str {
    CUSTOMERS[number as usize % CUSTOMERS.len()]
}

fn items(number: u32) -> u64 {
    u64::from(number % 4) + 1
}

fn is_shipped(number: u32) -> bool {
    number.is_multiple_of(2)
}

fn entity(number: u32) -> Value {
    json!({ "kind": "entity", "id": format!("order-{number}"), "type": "order", "key": format!("ORD-{number}") })
}

fn value(number: u32, field: &str, value: &Value, value_type: &str) -> Value {
    json!({
        "kind": "value",
        "id": format!("order-{number}-{field}"),
        "of": format!("order-{number}"),
        "field": field,
        "value": value,
        "value_type": value_type,
    })
}

fn money(cents: u64) -> Value {
    json!({ "amount": format!("{}.{:02}", cents / 100, cents % 100), "currency": "EUR" })
}

fn cents(amount: &str) -> Option<u64> {
    let (euros, cents) = amount.split_once('.')?;
    let cents: u64 = cents.parse().ok().filter(|_| cents.len() == 2)?;
    euros.parse::<u64>().ok()?.checked_mul(100)?.checked_add(cents)
}

fn get(desk: &mut Desk, arguments: &Value) -> Result<Value, WorkFault> {
    let Ok(number) = number(arguments) else {
        let searched = json!({ "kind": "completeness", "id": "all", "scope": "orders", "complete": true, "returned": 0, "total": 0 });
        return Ok(json!({ "status": "not_found", "evidence": [searched] }));
    };
    let state = match (desk.cancelled.contains(&number), is_shipped(number)) {
        (true, _) => "cancelled",
        (false, true) => "shipped",
        (false, false) => "packed",
    };
    let refunded: u64 = desk.refunds_cents.get(&number).into_iter().flatten().sum();
    let total = ITEM_CENTS * items(number);
    let evidence = json!([
        entity(number),
        value(number, "state", &json!(state), "string"),
        value(number, "customer", &json!(customer(number)), "string"),
        value(number, "items", &json!(items(number)), "integer"),
        value(number, "total", &money(total), "money"),
        value(number, "refunded", &money(refunded), "money"),
        value(number, "ordered_on", &json!("2026-03-14"), "date"),
        { "kind": "completeness", "id": "all", "scope": format!("order ORD-{number}"), "complete": true, "returned": 1, "total": 1 },
    ]);
    // The days are in no evidence: a reader of the answer is to be told so.
    let text = format!("Order ORD-{number} is {state}. Parcels usually arrive within 14 days.");
    Ok(json!({ "status": "ok", "evidence": evidence, "text": text }))
}

fn search(_: &mut Desk, arguments: &Value) -> Result<Value, WorkFault> {
    let wanted = arguments["customer"].as_str().unwrap_or_default();
    let limit = arguments["limit"].as_u64().map_or(3, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let orders: Vec<u32> = NUMBERS.rev().filter(|number| customer(*number) == wanted).collect();
    let mut evidence: Vec<Value> = orders.iter().take(limit).map(|number| entity(*number)).collect();
    let returned = evidence.len();
    evidence.push(json!({
        "kind": "completeness",
        "id": "all",
        "scope": format!("orders of {wanted}"),
        "complete": returned == orders.len(),
        "returned": returned,
        "total": orders.len(),
    }));
    let status = if orders.is_empty() { "not_found" } else { "ok" };
    Ok(json!({ "status": status, "evidence": evidence }))
}

fn cancel(desk: &mut Desk, arguments: &Value) -> Result<Value, WorkFault> {
    let number = number(arguments)?;
    if is_shipped(number) {
        return Err(WorkFault::new("shipped", format!("Order ORD-{number} has been shipped.")));
    }
    if !desk.cancelled.insert(number) {
        return Err(WorkFault::new("cancelled", format!("Order ORD-{number} was cancelled before.")));
    }
    Ok(json!({ "evidence": [entity(number)], "text": format!("Order ORD-{number} is cancelled.") }))
}

fn refund(desk: &mut Desk, arguments: &Value) -> Result<Value, WorkFault> {
    let number = number(arguments)?;
    let cents = cents(arguments["amount"].as_str().unwrap_or_default())
        .ok_or_else(|| WorkFault::new("bad_amount", "The amount is no amount of euros."))?;
    let refunds = desk.refunds_cents.entry(number).or_default();
    if cents == 0 || cents > ITEM_CENTS * items(number) - refunds.iter().sum::<u64>() {
        return Err(WorkFault::new("bad_amount", "More than nothing and no more than was paid can be paid back."));
    }
    refunds.push(cents);
    let reference = format!("RF-{number}-{}", refunds.len());
    let evidence = json!([
        entity(number),
        value(number, "refund", &money(cents), "money"),
        { "kind": "reference", "id": "refund", "type": "refund", "value": reference },
    ]);
    Ok(json!({ "evidence": evidence, "text": format!("Refund {reference} is on its way.") }))
}
