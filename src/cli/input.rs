//! What options say: files and standard input in their place, and the JSON they make.

use super::fault::CliFault;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Read as _;

/// Any body, instead of the options.
#[derive(clap::Args)]
pub(super) struct BodyArg {
    /// The whole body, instead of the options: JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(super) body: Option<String>,
}

impl BodyArg {
    /// The body that was given, else what the options make. Both together contradict each other.
    pub(super) fn or(&self, options: impl FnOnce() -> Result<Members, CliFault>) -> Result<String, CliFault> {
        self.or_completed(options, |members| members)
    }

    /// As [`BodyArg::or`]; `complete` adds what the options may leave out.
    pub(super) fn or_completed(
        &self,
        options: impl FnOnce() -> Result<Members, CliFault>,
        complete: impl FnOnce(Members) -> Members,
    ) -> Result<String, CliFault> {
        let members = options()?;
        match &self.body {
            None => complete(members).into_body(),
            Some(body) if members.0.is_empty() => contents(body),
            Some(_) => {
                let message = "--body is the whole body: leave out the options it replaces";
                Err(CliFault::BadInput(message.to_owned()))
            }
        }
    }
}

/// The value itself, the contents of `@FILE`, or standard input for `-`.
pub(super) fn contents(value: &str) -> Result<String, CliFault> {
    let unreadable = |source| CliFault::Unreadable { name: value.trim_start_matches('@').to_owned(), source };
    if value == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        Ok(text)
    } else if let Some(file) = value.strip_prefix('@') {
        std::fs::read_to_string(file).map_err(unreadable)
    } else {
        Ok(value.to_owned())
    }
}

/// A secret: as [`contents`], without the line end that files have.
pub(super) fn secret(value: &str) -> Result<String, CliFault> {
    contents(value).map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
}

/// `NAME=NUMBER`, or `NAME=` for what is inherited again.
pub(super) fn limit(text: &str) -> Result<(String, Option<u64>), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=NUMBER")?;
    let value = match value {
        "" => None,
        digits => Some(digits.parse().map_err(|_| format!("{digits} is not a whole number"))?),
    };
    Ok((name.to_owned(), value))
}

/// The members of a body, as options give them. Each value is JSON text: what a user writes is sent as it was written,
/// whatever its numbers.
#[derive(Default)]
pub(super) struct Members(Vec<(String, String)>);

impl Members {
    /// Whether there is nothing to say.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a member, when there is a value.
    pub(super) fn with(mut self, name: &str, value: Option<impl Into<Value>>) -> Self {
        self.0.extend(value.map(|value| (name.to_owned(), value.into().to_string())));
        self
    }

    /// Adds a member that an empty text sets to `null`.
    pub(super) fn clearable(self, name: &str, value: Option<&str>) -> Self {
        self.with(name, value.map(|text| if text.is_empty() { Value::Null } else { Value::from(text) }))
    }

    /// Adds a member that is not there yet.
    pub(super) fn default_to(self, name: &str, value: impl Into<Value>) -> Self {
        if self.0.iter().any(|(known, _)| known == name) { self } else { self.with(name, Some(value)) }
    }

    /// Adds an object, when it has members.
    pub(super) fn object(mut self, name: &str, members: Members) -> Self {
        if !members.0.is_empty() {
            self.0.push((name.to_owned(), members.text()));
        }
        self
    }

    /// Adds a list, when it has items.
    pub(super) fn list(self, name: &str, items: &[String]) -> Self {
        self.with(name, Some(items.to_vec()).filter(|items| !items.is_empty()))
    }

    /// Adds limits, when there are any.
    pub(super) fn limits(self, limits: &[(String, Option<u64>)]) -> Self {
        let member = |members: Members, (name, value): &(String, Option<u64>)| {
            members.with(name, Some(value.map_or(Value::Null, Value::from)))
        };
        self.object("limits", limits.iter().fold(Members::default(), member))
    }

    /// Adds JSON that an option holds.
    pub(super) fn json(mut self, name: &str, option: Option<&str>) -> Result<Self, CliFault> {
        let Some(option) = option else { return Ok(self) };
        let text = contents(option)?;
        let value: &RawValue =
            serde_json::from_str(&text).map_err(|error| CliFault::BadInput(format!("{name} is not JSON: {error}")))?;
        self.0.push((name.to_owned(), value.get().to_owned()));
        Ok(self)
    }

    /// The body; without any member there is nothing to say.
    fn into_body(self) -> Result<String, CliFault> {
        if self.0.is_empty() {
            let message = "nothing is given: name at least one option, or the whole --body";
            return Err(CliFault::BadInput(message.to_owned()));
        }
        Ok(self.text())
    }

    fn text(&self) -> String {
        let members = self.0.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_make_the_members_that_were_given() {
        let limits = [limit("tool_per_second=5").expect("good"), limit("max_tools=").expect("good")];
        let members = Members::default()
            .with("name", Some("shop"))
            .with("risk", None::<&str>)
            .clearable("name_prefix", Some(""))
            .object("auth", Members::default())
            .list("groups", &[])
            .limits(&limits);
        let body = members.into_body().expect("a body");
        assert_eq!(body, r#"{"name":"shop","name_prefix":null,"limits":{"tool_per_second":5,"max_tools":null}}"#);
        assert!(Members::default().into_body().is_err());
        assert!(limit("x").is_err() && limit("x=-1").is_err());
    }

    #[test]
    fn a_body_and_the_options_it_replaces_do_not_go_together() {
        let arg = |body: &str| BodyArg { body: Some(body.to_owned()) };
        let named = || Ok(Members::default().with("name", Some("shop")));
        let complete = |members: Members| members.default_to("name", "x").default_to("groups", vec!["default"]);
        assert!(arg("{}").or(named).is_err());
        assert_eq!(arg("{ }").or_completed(|| Ok(Members::default()), complete).expect("as given"), "{ }");
        let body = BodyArg { body: None }.or_completed(named, complete).expect("made of options");
        assert_eq!(body, r#"{"name":"shop","groups":["default"]}"#);
    }

    // oceanbase/powercontext#1098
    #[test]
    fn arguments_are_sent_as_they_were_written() {
        let written = r#"{ "id": 725653563933458432123, "price": 1.50 }"#;
        let body = Members::default().json("args", Some(written)).and_then(Members::into_body).expect("a body");
        assert_eq!(body, format!(r#"{{"args":{written}}}"#));
        assert!(Members::default().json("args", Some("{oops}")).is_err());
    }

    #[test]
    fn a_value_may_stand_in_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "s3cret\n").expect("written");
        let option = format!("@{}", file.path().display());
        assert_eq!(secret(&option).expect("readable"), "s3cret");
        assert_eq!(contents(&option).expect("readable"), "s3cret\n");
        assert_eq!(secret("plain").expect("itself"), "plain");
        assert!(contents("@/no/such/file").is_err());
    }
}
