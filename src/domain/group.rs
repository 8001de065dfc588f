//! Groups: who may use what. One decision serves listing and calling alike.

use super::ids::GroupId;
use super::risk::Risk;
use super::time::Timestamp;

/// What a matching rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The tool may be used unless another rule denies it.
    Allow,
    /// The tool may not be used, whatever allows it.
    Deny,
}

impl Effect {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::Deny => "deny",
        }
    }

    /// The effect with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Effect::Allow, Effect::Deny].into_iter().find(|e| e.as_str() == word)
    }
}

/// One rule: the members present are ANDed, the values inside one are ORed. An absent member matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What a match does.
    pub effect: Effect,
    /// Globs over bare tool names; `*` stands for any run of characters; case-sensitive.
    pub tools: Option<Vec<String>>,
    /// Endpoint names.
    pub endpoints: Option<Vec<String>>,
    /// Risks.
    pub risks: Option<Vec<Risk>>,
}

/// A group of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// Its name (a slug), unique in its organization.
    pub name: String,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Raised by every change.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Catalog name of the tool.
    pub tool: &'a str,
    /// Name of its endpoint.
    pub endpoint: &'a str,
    /// Its risk; a tool without a declared one counts as `low` when it is a plain read, else as `medium`.
    pub risk: Risk,
}

/// The decision and the rule that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// An allow rule matches and no deny rule does.
    Allowed {
        /// Name of the group whose rule allows.
        group: &'a str,
        /// Its index in the group.
        rule: usize,
    },
    /// A deny rule matches.
    Denied {
        /// Name of the group whose rule denies.
        group: &'a str,
        /// Its index in the group.
        rule: usize,
    },
    /// No rule matches.
    NoRule,
}

impl Rule {
    fn matches(&self, subject: Subject<'_>) -> bool {
        self.tools.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob_matches(glob, subject.tool)))
            && self.endpoints.as_ref().is_none_or(|names| names.iter().any(|name| name == subject.endpoint))
            && self.risks.as_ref().is_none_or(|risks| risks.contains(&subject.risk))
    }
}

/// What the groups of a key together say: any allow, and no deny.
pub fn decide<'a>(groups: impl IntoIterator<Item = &'a Group>, subject: Subject<'_>) -> Verdict<'a> {
    let mut verdict = Verdict::NoRule;
    for group in groups {
        for (rule, candidate) in group.rules.iter().enumerate().filter(|(_, r)| r.matches(subject)) {
            match candidate.effect {
                Effect::Deny => return Verdict::Denied { group: &group.name, rule },
                Effect::Allow if verdict == Verdict::NoRule => {
                    verdict = Verdict::Allowed { group: &group.name, rule };
                }
                Effect::Allow => {}
            }
        }
    }
    verdict
}

/// Whether `glob`, in which `*` stands for any run of characters, matches the whole of `name`. Linear in the usual
/// case and never worse than the product of the lengths.
pub fn glob_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if g < glob.len() && glob[g] == b'*' {
            star = Some((g, n));
            g += 1;
        } else if g < glob.len() && glob[g] == name[n] {
            g += 1;
            n += 1;
        } else if let Some((star_at, taken)) = star {
            g = star_at + 1;
            n = taken + 1;
            star = Some((star_at, n));
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn globs_match_whole_names_case_sensitively() {
        for (glob, name, expected) in [
            ("*", "", true),
            ("*", "weather-report", true),
            ("weather-*", "weather-report", true),
            ("*-report", "weather-report", true),
            ("w*r*t", "weather-report", true),
            ("weather", "weather-report", false),
            ("Weather-*", "weather-report", false),
            ("*x*", "weather-report", false),
            ("", "a", false),
        ] {
            assert_eq!(glob_matches(glob, name), expected, "{glob} on {name}");
        }
    }

    fn rule(effect: Effect, tools: Option<&[&str]>, risks: Option<&[Risk]>) -> Rule {
        Rule {
            effect,
            tools: tools.map(|t| t.iter().map(|s| (*s).to_owned()).collect()),
            endpoints: None,
            risks: risks.map(<[Risk]>::to_vec),
        }
    }

    fn group(name: &str, rules: Vec<Rule>) -> Group {
        Group {
            id: GroupId::from_uuid(uuid::Uuid::nil()),
            name: name.to_owned(),
            rules,
            version: 1,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
        }
    }

    const SUBJECT: Subject<'static> = Subject { tool: "wipe-disk", endpoint: "ops", risk: Risk::High };

    #[test]
    fn a_deny_in_any_group_wins_over_an_allow_in_another() {
        let open = group("open", vec![rule(Effect::Allow, Some(&["*"]), None)]);
        let careful = group("careful", vec![rule(Effect::Deny, None, Some(&[Risk::High]))]);
        assert_eq!(decide([&open], SUBJECT), Verdict::Allowed { group: "open", rule: 0 });
        assert_eq!(decide([&open, &careful], SUBJECT), Verdict::Denied { group: "careful", rule: 0 });
        assert_eq!(decide([&careful, &open], SUBJECT), Verdict::Denied { group: "careful", rule: 0 });
        assert_eq!(decide([], SUBJECT), Verdict::NoRule);
    }

    #[test]
    fn members_of_a_rule_are_anded() {
        let both = group("g", vec![rule(Effect::Allow, Some(&["wipe-*"]), Some(&[Risk::Low]))]);
        assert_eq!(decide([&both], SUBJECT), Verdict::NoRule);
    }

    proptest! {
        #[test]
        fn a_glob_cut_from_the_name_matches_it(name in "[a-z-]{0,20}", from in 0usize..20, to in 0usize..20) {
            let (from, to) = (from.min(name.len()), to.min(name.len()));
            let (from, to) = (from.min(to), from.max(to));
            let glob = format!("{}*{}", &name[..from], &name[to..]);
            prop_assert!(glob_matches(&glob, &name));
        }
    }
}
