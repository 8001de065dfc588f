//! `$ref` inside one document: `#`, JSON pointers, anchors, and identifiers the document itself declares.

use crate::domain::json_pointer;
use crate::domain::schema::DefaultDraft;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use url::Url;

/// The base of a document that has no identifier.
const DEFAULT_BASE: &str = "json-schema:///";

type Schema = Map<String, Value>;

/// A schema and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Site<'s> {
    /// The schema object.
    pub(crate) schema: &'s Schema,
    /// The schema resource it belongs to: the nearest one around it with an identifier of its own.
    resource: &'s Schema,
    /// Whether the keywords beside a `$ref` count.
    pub(crate) has_keywords: bool,
}

impl<'s> Site<'s> {
    /// The keywords that count.
    pub(crate) fn keywords(&self) -> Option<&'s Schema> {
        self.has_keywords.then_some(self.schema)
    }
}

/// Finds the targets of references.
pub(crate) struct Resolver<'s> {
    root: &'s Schema,
    id_keyword: &'static str,
    is_legacy: bool,
    /// Made for the first reference that needs it: most schemas have pointers only.
    index: Option<Index<'s>>,
}

impl<'s> Resolver<'s> {
    pub(crate) fn new(root: &'s Schema, default_draft: DefaultDraft) -> Self {
        let declared = root.get("$schema").and_then(Value::as_str);
        let is_legacy = match declared {
            Some(uri) => uri.contains("json-schema.org/draft-0"),
            None => default_draft == DefaultDraft::Draft7,
        };
        let is_draft_4 = declared.is_some_and(|uri| uri.contains("json-schema.org/draft-04/"));
        Self { root, id_keyword: if is_draft_4 { "id" } else { "$id" }, is_legacy, index: None }
    }

    pub(crate) const fn root(&self) -> Site<'s> {
        Site { schema: self.root, resource: self.root, has_keywords: true }
    }

    /// Up to draft 7 a `$ref` replaces everything that stands beside it.
    pub(crate) fn ref_stands_alone(&self, schema: &Schema) -> bool {
        self.is_legacy && schema.contains_key("$ref")
    }

    /// A schema directly inside another one.
    pub(crate) fn enter(&self, outer: Site<'s>, schema: &'s Schema) -> Site<'s> {
        let resource = if self.identifier(schema).is_some() { schema } else { outer.resource };
        Site { schema, resource, has_keywords: true }
    }

    /// The target of a reference, when it is an object inside the document.
    pub(crate) fn resolve(&mut self, from: Site<'s>, reference: &str) -> Option<Site<'s>> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        let resource = if uri.is_empty() { from.resource } else { self.index().resource(from.resource, uri)? };
        if fragment.is_empty() {
            return Some(Site { schema: resource, resource, has_keywords: true });
        }
        match fragment.strip_prefix('/') {
            Some(pointer) => self.follow(resource, pointer),
            None => self.index().anchor(resource, fragment),
        }
    }

    fn follow(&self, resource: &'s Schema, pointer: &str) -> Option<Site<'s>> {
        let mut site = Site { schema: resource, resource, has_keywords: true };
        let mut tokens = pointer.split('/').map(json_pointer::unescape);
        let mut value = site.schema.get(tokens.next()?.as_ref())?;
        loop {
            if let Some(schema) = value.as_object() {
                site = self.enter(site, schema);
            }
            let Some(token) = tokens.next() else { break };
            value = match value {
                Value::Object(members) => members.get(token.as_ref())?,
                Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        value.is_object().then_some(site)
    }

    /// The identifier that makes a schema a resource of its own.
    fn identifier(&self, schema: &'s Schema) -> Option<&'s str> {
        let id = schema.get(self.id_keyword)?.as_str()?;
        (!id.starts_with('#') && !self.ref_stands_alone(schema)).then_some(id)
    }

    fn index(&mut self) -> &Index<'s> {
        if self.index.is_none() {
            let mut index = Index::default();
            let base = Url::parse(DEFAULT_BASE).ok();
            index.add(self, self.root(), base.as_ref());
            self.index = Some(index);
        }
        self.index.get_or_insert_default()
    }
}

/// Every identifier and anchor of a document.
#[derive(Default)]
struct Index<'s> {
    resources: HashMap<String, &'s Schema>,
    bases: HashMap<*const Schema, Url>,
    anchors: HashMap<(*const Schema, &'s str), &'s Schema>,
}

impl<'s> Index<'s> {
    fn resource(&self, from: &'s Schema, uri: &str) -> Option<&'s Schema> {
        let target = self.bases.get(&std::ptr::from_ref(from))?.join(uri).ok()?;
        self.resources.get(target.as_str()).copied()
    }

    fn anchor(&self, resource: &'s Schema, anchor: Cow<'_, str>) -> Option<Site<'s>> {
        let key = (std::ptr::from_ref(resource), anchor.as_ref());
        self.anchors.get(&key).map(|schema| Site { schema, resource, has_keywords: true })
    }

    fn add(&mut self, resolver: &Resolver<'s>, site: Site<'s>, base: Option<&Url>) {
        let id = resolver.identifier(site.schema);
        let own_base = id.and_then(|id| {
            let mut url = base.map_or_else(|| Url::parse(id), |base| base.join(id)).ok()?;
            url.set_fragment(None);
            Some(url)
        });
        let base = own_base.as_ref().or(base);
        if std::ptr::eq(site.schema, site.resource)
            && let Some(base) = base
        {
            self.resources.entry(base.as_str().to_owned()).or_insert(site.schema);
            self.bases.insert(std::ptr::from_ref(site.schema), base.clone());
        }
        let resource = std::ptr::from_ref(site.resource);
        let legacy = site.schema.get(resolver.id_keyword).and_then(Value::as_str).and_then(|id| id.strip_prefix('#'));
        let named = ["$anchor", "$dynamicAnchor"].into_iter().filter_map(|k| site.schema.get(k)?.as_str());
        for anchor in named.chain(legacy) {
            self.anchors.entry((resource, anchor)).or_insert(site.schema);
        }
        for (keyword, operand) in site.schema {
            match keyword.as_str() {
                // Data, whatever it looks like.
                "enum" | "const" | "default" | "examples" => {}
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    for schema in operand.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_object) {
                        self.add(resolver, resolver.enter(site, schema), base);
                    }
                }
                _ => self.add_operand(resolver, site, operand, base),
            }
        }
    }

    fn add_operand(&mut self, resolver: &Resolver<'s>, site: Site<'s>, operand: &'s Value, base: Option<&Url>) {
        match operand {
            Value::Object(schema) => self.add(resolver, resolver.enter(site, schema), base),
            Value::Array(items) => {
                for item in items {
                    self.add_operand(resolver, site, item, base);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
