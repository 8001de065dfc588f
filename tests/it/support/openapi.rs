//! The APIs as `/openapi.json` describes them: what a test has to walk when it means "every route".

use super::client::Client;
use serde_json::Value;

/// One operation of the document.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: String,
    /// With `{parameters}`.
    pub(crate) path: String,
    pub(crate) description: Value,
}

impl Operation {
    pub(crate) fn takes_a_body(&self) -> bool {
        !self.description["requestBody"].is_null()
    }

    /// The path with this value in place of every parameter.
    pub(crate) fn at(&self, value: &str) -> String {
        let segments = self.path.split('/').map(|segment| if segment.starts_with('{') { value } else { segment });
        segments.collect::<Vec<_>>().join("/")
    }
}

pub(crate) fn document(client: &Client) -> Value {
    client.get("/openapi.json").send().expect(200).json()
}

/// Every operation of the document, in its order.
pub(crate) fn operations(client: &Client) -> Vec<Operation> {
    let document = document(client);
    let paths = document["paths"].as_object().expect("paths");
    let of_path = |(path, item): (&String, &Value)| {
        let methods = item.as_object().expect("a path item").iter();
        let operation = |(method, description): (&String, &Value)| Operation {
            method: method.to_uppercase(),
            path: path.clone(),
            description: description.clone(),
        };
        methods.map(operation).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}
