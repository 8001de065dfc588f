//! Coercion: lossless scalars only, and only where a value does not satisfy its declared type yet.
//!
//! For every value the schemas that apply to it are gathered (the one in place, its `allOf` members and the targets of
//! its local `$ref`s), then the value is brought to the types they declare, and its members and items are visited with
//! theirs. Where no lossless spelling satisfies every declared type the value stays as it was sent: validation says so.
//!
//! **Invariant:** coercing twice changes nothing more; what already validates stays, but for `20.0` becoming `20`.

mod scalar;

#[cfg(test)]
mod tests;

use super::schema::resolve::{Resolver, Site};
use super::schema::{self, DefaultDraft};
use scalar::Types;
use serde_json::{Map, Value};

/// Coerces `arguments` in place by the declared types of `schema`; true when anything changed. A schema that does not
/// name its draft is read as 2020-12.
pub fn coerce(schema: &Value, arguments: &mut Value) -> bool {
    coerce_as(schema, DefaultDraft::Draft202012, arguments)
}

/// Like [`coerce`], for a schema that does not name its draft: up to draft 7, what stands beside a `$ref` does not count.
pub fn coerce_as(schema: &Value, default_draft: DefaultDraft, arguments: &mut Value) -> bool {
    let Some(root) = schema.as_object() else { return false };
    let resolver = Resolver::new(root, default_draft);
    let mut coercion = Coercion { resolver, sites: Vec::with_capacity(16), types: Vec::new() };
    coercion.sites.push(coercion.resolver.root());
    coercion.visit(arguments, 0)
}

struct Coercion<'s> {
    resolver: Resolver<'s>,
    /// A stack: from some index on, the schemas that apply to the value being visited.
    sites: Vec<Site<'s>>,
    /// Scratch: the types declared for the scalar being visited.
    types: Vec<Types>,
}

impl<'s> Coercion<'s> {
    /// Visits a value to which the schemas from `first` on apply, and takes them off the stack.
    fn visit(&mut self, value: &mut Value, first: usize) -> bool {
        self.gather(first);
        let changed = match value {
            Value::Object(members) => self.visit_members(members, first),
            Value::Array(items) => self.visit_items(items, first),
            Value::Null => false,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.types.clear();
                let declared = self.sites[first..].iter().filter_map(|site| site.keywords()?.get("type"));
                self.types.extend(declared.map(Types::of));
                scalar::coerce(value, &self.types)
            }
        };
        self.sites.truncate(first);
        changed
    }

    /// Adds what `allOf` and `$ref` bring in; each schema once, so a cycle of references ends.
    fn gather(&mut self, first: usize) {
        let mut next = first;
        while let Some(&site) = self.sites.get(next) {
            next += 1;
            let ref_stands_alone = self.resolver.ref_stands_alone(site.schema);
            if ref_stands_alone {
                self.sites[next - 1].has_keywords = false;
            }
            // Both are rare, and most schemas have few members: one walk is cheaper than two look-ups.
            for (keyword, operand) in site.schema {
                match (keyword.as_str(), operand) {
                    ("$ref", Value::String(reference)) => {
                        if let Some(target) = self.resolver.resolve(site, reference) {
                            self.push_new(first, target);
                        }
                    }
                    ("allOf", Value::Array(schemas)) if !ref_stands_alone => {
                        for schema in schemas.iter().filter_map(Value::as_object) {
                            let inner = self.resolver.enter(site, schema);
                            self.push_new(first, inner);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn push_new(&mut self, first: usize, site: Site<'s>) {
        if !self.sites[first..].iter().any(|known| std::ptr::eq(known.schema, site.schema)) {
            self.sites.push(site);
        }
    }

    fn visit_members(&mut self, members: &mut Map<String, Value>, first: usize) -> bool {
        let last = self.sites.len();
        let mut changed = false;
        for (name, member) in members.iter_mut() {
            for index in first..last {
                let site = self.sites[index];
                if let Some(schema) = site.keywords().and_then(|keywords| member_schema(keywords, name)) {
                    let inner = self.resolver.enter(site, schema);
                    self.push_new(last, inner);
                }
            }
            if self.sites.len() > last {
                changed |= self.visit(member, last);
            }
        }
        changed
    }

    fn visit_items(&mut self, items: &mut [Value], first: usize) -> bool {
        let last = self.sites.len();
        let mut changed = false;
        for (position, item) in items.iter_mut().enumerate() {
            for index in first..last {
                let site = self.sites[index];
                if let Some(schema) = site.keywords().and_then(|keywords| item_schema(keywords, position)) {
                    let inner = self.resolver.enter(site, schema);
                    self.push_new(last, inner);
                }
            }
            if self.sites.len() > last {
                changed |= self.visit(item, last);
            }
        }
        changed
    }
}

/// The schema of a member: by its name, else that of the additional ones. What a pattern claims is not entered.
fn member_schema<'s>(keywords: &'s Map<String, Value>, name: &str) -> Option<&'s Map<String, Value>> {
    if let Some(property) = keywords.get("properties").and_then(|properties| properties.get(name)) {
        return property.as_object();
    }
    let additional = keywords.get("additionalProperties")?.as_object()?;
    match keywords.get("patternProperties") {
        Some(Value::Object(patterns)) if patterns.keys().any(|pattern| schema::name_matches(pattern, name)) => None,
        _ => Some(additional),
    }
}

/// The schema of an item: by its position, else that of the rest. `items` as an array is the older spelling of
/// `prefixItems`.
fn item_schema(schema: &Map<String, Value>, position: usize) -> Option<&Map<String, Value>> {
    let items = schema.get("items");
    if let Some(Value::Array(positional)) = items {
        return positional.get(position)?.as_object();
    }
    match schema.get("prefixItems").and_then(Value::as_array).and_then(|prefix| prefix.get(position)) {
        Some(positional) => positional.as_object(),
        None => items?.as_object(),
    }
}
