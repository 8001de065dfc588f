//! What a client takes for an answer: `Accept`, as far as it matters here.

use actix_web::http::header::{ACCEPT, HeaderMap};

/// The two forms an answer can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) stream: bool,
}

/// Reads the header; without one anything is taken.
pub(super) fn accepts(headers: &HeaderMap) -> Accepts {
    if !headers.contains_key(ACCEPT) {
        return Accepts { json: true, stream: true };
    }
    let mut accepts = Accepts { json: false, stream: false };
    for value in headers.get_all(ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            // What has no weight is not wanted.
            let is_refused = parts.any(|parameter| {
                let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
                weight.and_then(|weight| weight.parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
            });
            if !is_refused {
                accepts.json |= matches!(media_type.as_str(), "application/json" | "application/*" | "*/*");
                accepts.stream |= matches!(media_type.as_str(), "text/event-stream" | "text/*" | "*/*");
            }
        }
    }
    accepts
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn both_forms_are_found_in_any_spelling() {
        for (lines, json, stream) in [
            (vec![], true, true),
            (vec!["application/json, text/event-stream"], true, true),
            (vec!["text/event-stream;q=0.5,Application/JSON ; charset=utf-8"], true, true),
            (vec!["application/json", "text/event-stream"], true, true),
            (vec!["*/*"], true, true),
            (vec!["application/*"], true, false),
            (vec!["application/json"], true, false),
            (vec!["text/event-stream"], false, true),
            (vec!["application/json;q=0, */*;q=0.0, text/event-stream"], false, true),
            (vec!["text/html"], false, false),
            (vec![""], false, false),
        ] {
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(ACCEPT, HeaderValue::from_static(line));
            }
            assert_eq!(accepts(&headers), Accepts { json, stream }, "{lines:?}");
        }
    }
}
