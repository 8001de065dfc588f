//! Identifiers: one type a noun, all UUIDv7, so that no id of one kind passes for another.

use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID made by the engine's clock.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID itself.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            /// Takes only the hyphenated lower-case form, so that one id has one spelling.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let uuid = Uuid::try_parse(text)?;
                let mut buffer = Uuid::encode_buffer();
                if text == uuid.as_hyphenated().encode_lower(&mut buffer) {
                    Ok(Self(uuid))
                } else {
                    Uuid::try_parse("").map(Self)
                }
            }
        }
    };
}

id!(
    /// An organization (tenant).
    OrgId
);
id!(
    /// A workspace key or an agent key.
    KeyId
);
id!(
    /// A group of an organization.
    GroupId
);
id!(
    /// An endpoint (provider) of an organization.
    EndpointId
);
id!(
    /// A run; on the wire this is the `correlation_id`.
    RunId
);
id!(
    /// A mutation that happens once; on the wire this is the `Operation-Id`.
    OperationId
);
id!(
    /// One sync of one endpoint.
    SyncId
);
id!(
    /// An approval.
    ApprovalId
);
id!(
    /// An entry of the audit trail.
    AuditId
);
id!(
    /// One message to an organization's application.
    DeliveryId
);
