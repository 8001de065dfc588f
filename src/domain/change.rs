//! A member of a PATCH.

/// What becomes of an optional value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Absent: it stays.
    #[default]
    Keep,
    /// `null`: it goes back to what is inherited or absent.
    Clear,
    /// The new value.
    Set(T),
}

impl<T> Change<T> {
    /// Applies the change to an optional value.
    pub fn apply(self, to: &mut Option<T>) {
        match self {
            Change::Keep => {}
            Change::Clear => *to = None,
            Change::Set(value) => *to = Some(value),
        }
    }
}
