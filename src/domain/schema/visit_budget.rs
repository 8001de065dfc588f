//! How often a validation may visit a schema.
//!
//! Saying *whether* a value is valid is quick for nearly any schema, but a chain of references that each stand twice
//! doubles the walk with every link. Saying *why not* walks every path to a fault, which doubles with every level of the
//! value as soon as a schema refers to itself twice. So a walk that could get out of hand is counted before it is made:
//! each pair of schema and value once, however many paths lead to it.

use super::DefaultDraft;
use super::name_pattern::name_matches;
use super::resolve::{Resolver, Site};
use super::schema_limits::SchemaSize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Most visits of a schema at a value.
const MAX_VISITS: u64 = 100_000;

/// Most schemas there are once references are written out; beyond it each validation is counted first.
const MAX_EXPANDED: u64 = 10_000;

/// What may be said about an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// Every error.
    Full,
    /// The first error.
    First,
    /// That it is invalid.
    Bare,
}

/// What has to be known of a schema to bound its walks.
#[derive(Debug)]
pub(super) struct VisitBudget {
    nodes: u64,
    references: u64,
    has_dynamic_references: bool,
    has_alternatives: bool,
    /// References multiply so much that even saying yes or no may take long.
    is_guarded: bool,
    /// How references are followed to count.
    default_draft: DefaultDraft,
}

impl VisitBudget {
    pub(super) fn new(schema: &Value, default_draft: DefaultDraft, size: &SchemaSize) -> Self {
        let has_references = size.references > 0;
        Self {
            nodes: u64::try_from(size.nodes).unwrap_or(u64::MAX),
            references: size.references,
            has_dynamic_references: size.has_dynamic_references,
            has_alternatives: size.has_alternatives,
            is_guarded: has_references && Expansion::of(schema, default_draft) > MAX_EXPANDED,
            default_draft,
        }
    }

    /// Whether a value can be validated against the schema this was made of within the budget.
    pub(super) fn allows(&self, schema: &Value, value: &Value) -> bool {
        !self.is_guarded || Count::of(schema, self.default_draft, value) <= MAX_VISITS
    }

    /// What can be said about a value that is known to be invalid.
    pub(super) fn account_of(&self, schema: &Value, value: &Value) -> Account {
        if self.references == 0 {
            // No value meets more schemas than there are.
            return if is_at_most(value, &mut (MAX_VISITS / self.nodes.max(1))) {
                Account::Full
            } else if self.has_alternatives {
                // The one error of anyOf or oneOf would hold all errors of their branches.
                Account::Bare
            } else {
                Account::First
            };
        }
        let is_short = if self.has_dynamic_references {
            // Their targets depend on the path: at worst each doubles the walk at each value.
            is_at_most(value, &mut (u64::from(MAX_VISITS.ilog2()) / self.references))
        } else {
            Count::of(schema, self.default_draft, value) <= MAX_VISITS
        };
        if is_short { Account::Full } else { Account::Bare }
    }
}

/// Counts the schemas of a document with its references written out, those of a cycle once.
struct Expansion<'s> {
    resolver: Resolver<'s>,
    known: HashMap<*const Map<String, Value>, u64>,
}

impl<'s> Expansion<'s> {
    fn of(schema: &'s Value, default_draft: DefaultDraft) -> u64 {
        let Some(root) = schema.as_object() else { return 1 };
        let resolver = Resolver::new(root, default_draft);
        let site = resolver.root();
        Expansion { resolver, known: HashMap::new() }.schemas(site)
    }

    fn schemas(&mut self, site: Site<'s>) -> u64 {
        let here = std::ptr::from_ref(site.schema);
        if let Some(known) = self.known.get(&here) {
            return *known;
        }
        self.known.insert(here, 1);
        let mut total = 1_u64;
        for (keyword, operand) in site.schema {
            total = total.saturating_add(match (keyword.as_str(), operand) {
                ("$ref", Value::String(reference)) => {
                    self.resolver.resolve(site, reference).map_or(1, |target| self.schemas(target))
                }
                // Reached by references only.
                ("$defs" | "definitions", _) => 0,
                _ => self.operand(site, operand),
            });
        }
        self.known.insert(here, total);
        total
    }

    /// Whatever may be a schema counts as one: names of properties and data only add a little.
    fn operand(&mut self, site: Site<'s>, operand: &'s Value) -> u64 {
        match operand {
            Value::Object(schema) => self.schemas(self.resolver.enter(site, schema)),
            Value::Array(items) => items.iter().fold(0, |sum, item| self.operand(site, item).saturating_add(sum)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
}

/// Whether a value holds no more than so many values, itself among them.
fn is_at_most(value: &Value, left: &mut u64) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Object(members) => members.values().all(|member| is_at_most(member, left)),
        Value::Array(items) => items.iter().all(|item| is_at_most(item, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

type Visit = (*const Map<String, Value>, *const Value);

/// Counts the visits the walk would make, each pair of schema and value once.
struct Count<'s> {
    resolver: Resolver<'s>,
    known: HashMap<Visit, u64>,
}

impl<'s> Count<'s> {
    fn of(schema: &'s Value, default_draft: DefaultDraft, value: &Value) -> u64 {
        let Some(root) = schema.as_object() else { return 1 };
        let resolver = Resolver::new(root, default_draft);
        let site = resolver.root();
        Count { resolver, known: HashMap::new() }.visits(site, value)
    }

    fn visits(&mut self, site: Site<'s>, value: &Value) -> u64 {
        let visit = (std::ptr::from_ref(site.schema), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&visit) {
            return *known;
        }
        if u64::try_from(self.known.len()).is_ok_and(|pairs| pairs > MAX_VISITS) {
            return MAX_VISITS + 1;
        }
        // What a cycle at the same value leads back to is not walked again.
        self.known.insert(visit, 0);
        let mut total = 1_u64;
        for (keyword, operand) in site.schema {
            total = total.saturating_add(self.keyword_visits(site, keyword, operand, value));
        }
        self.known.insert(visit, total);
        total
    }

    fn keyword_visits(&mut self, site: Site<'s>, keyword: &str, operand: &'s Value, value: &Value) -> u64 {
        match (keyword, operand, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference), _) => {
                match self.resolver.resolve(site, reference) {
                    Some(target) => self.visits(target, value),
                    None => 1,
                }
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas), _) => {
                self.sum(schemas.iter().map(|schema| (schema, value)), site)
            }
            ("not" | "if" | "then" | "else", schema, _) => self.sum([(schema, value)], site),
            ("dependentSchemas" | "dependencies", Value::Object(schemas), Value::Object(_)) => {
                self.sum(schemas.values().map(|schema| (schema, value)), site)
            }
            ("properties", Value::Object(schemas), Value::Object(members)) => {
                let pairs = members.iter().filter_map(|(name, member)| Some((schemas.get(name)?, member)));
                self.sum(pairs, site)
            }
            ("patternProperties", Value::Object(schemas), Value::Object(members)) => {
                let pairs = schemas.iter().flat_map(|(pattern, schema)| {
                    let claimed = members.iter().filter(move |(name, _)| name_matches(pattern, name));
                    claimed.map(move |(_, member)| (schema, member))
                });
                self.sum(pairs, site)
            }
            ("additionalProperties" | "unevaluatedProperties", schema, Value::Object(members)) => {
                self.sum(members.values().map(|member| (schema, member)), site)
            }
            ("items", Value::Array(schemas), Value::Array(items))
            | ("prefixItems", Value::Array(schemas), Value::Array(items)) => self.sum(schemas.iter().zip(items), site),
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema, Value::Array(items)) => {
                self.sum(items.iter().map(|item| (schema, item)), site)
            }
            _ => 0,
        }
    }

    fn sum<'v>(&mut self, pairs: impl IntoIterator<Item = (&'s Value, &'v Value)>, site: Site<'s>) -> u64 {
        let mut total = 0_u64;
        for (schema, value) in pairs {
            let visits = match schema.as_object() {
                Some(schema) => self.visits(self.resolver.enter(site, schema), value),
                None => 1,
            };
            total = total.saturating_add(visits);
            if total > MAX_VISITS {
                break;
            }
        }
        total
    }
}
