//! The error codes of the wire contract and their HTTP statuses: the one table.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $title:literal;)*) => {
        /// What went wrong, as the `code` of a problem document or of a failed run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the contract.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $code,)* }
            }

            /// The HTTP status of a problem document with this code.
            pub const fn status(self) -> u16 {
                match self { $(ErrorCode::$variant => $status,)* }
            }

            /// The short human title of a problem document with this code.
            pub const fn title(self) -> &'static str {
                match self { $(ErrorCode::$variant => $title,)* }
            }
        }
    };
}

error_codes! {
    /// The body is not JSON as section 0 of the contract wants it.
    InvalidJson = "invalid_json", 400, "The body is not acceptable JSON";
    /// A member, header or parameter is unknown, missing or out of bounds.
    InvalidRequest = "invalid_request", 400, "The request is not valid";
    /// No acceptable key; one body for every reason.
    Unauthorized = "unauthorized", 401, "A valid key is required";
    /// A callback's signature does not verify.
    InvalidSignature = "invalid_signature", 401, "The signature does not verify";
    /// The key is good but this is not allowed.
    Forbidden = "forbidden", 403, "This is not allowed";
    /// No such object for this key.
    NotFound = "not_found", 404, "There is no such object";
    /// No such tool for this key; one body for every reason.
    UnknownTool = "unknown_tool", 404, "There is no such tool";
    /// The path exists, the method does not.
    MethodNotAllowed = "method_not_allowed", 405, "The method is not allowed here";
    /// The same operation was asked for with other content.
    OperationConflict = "operation_conflict", 409, "The operation conflicts with an earlier one";
    /// The confirmation token does not belong to this call.
    ConfirmationMismatch = "confirmation_mismatch", 409, "The confirmation does not match";
    /// The name is in use.
    NameTaken = "name_taken", 409, "The name is taken";
    /// The approval was decided before.
    AlreadyDecided = "already_decided", 409, "This was decided before";
    /// Something still refers to the object.
    InUse = "in_use", 409, "The object is in use";
    /// A configured number of objects is reached.
    LimitReached = "limit_reached", 409, "A limit is reached";
    /// `If-Match` names an older version.
    PreconditionFailed = "precondition_failed", 412, "The object has changed";
    /// The body is over its limit.
    TooLarge = "too_large", 413, "The body is too large";
    /// The body is not `application/json`.
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be application/json";
    /// The arguments do not satisfy the tool's schema.
    InvalidArguments = "invalid_arguments", 422, "The arguments are not valid";
    /// A manifest was refused.
    ManifestRefused = "manifest_refused", 422, "The manifest was refused";
    /// A rate limit refused the call.
    RateLimited = "rate_limited", 429, "Too many requests";
    /// The header block is over its limit.
    HeadersTooLarge = "headers_too_large", 431, "The header block is too large";
    /// A fault of toolgate itself.
    Internal = "internal", 500, "The gateway failed";
    /// The provider failed.
    ProviderError = "provider_error", 502, "The provider failed";
    /// The provider ran the tool and reports its failure.
    ExecutionFailed = "execution_failed", 502, "The tool failed";
    /// The provider refused toolgate's credentials.
    ProviderAuthFailed = "provider_auth_failed", 502, "The provider refused the credentials";
    /// The provider's answer breaks its protocol.
    ProviderProtocolError = "provider_protocol_error", 502, "The provider broke its protocol";
    /// Evidence breaks what the manifest declares.
    EvidenceContractViolation = "evidence_contract_violation", 502, "The evidence breaks its contract";
    /// The result does not satisfy the tool's output schema.
    OutputInvalid = "output_invalid", 502, "The result is not valid";
    /// toolgate is too busy or stopping.
    Overloaded = "overloaded", 503, "The gateway is overloaded";
    /// The provider cannot be reached now.
    EndpointUnavailable = "endpoint_unavailable", 503, "The endpoint is unavailable";
    /// The store does not answer.
    StoreUnavailable = "store_unavailable", 503, "The store is unavailable";
    /// The provider did not answer in time.
    ProviderTimeout = "provider_timeout", 504, "The provider timed out";
}

impl ErrorCode {
    /// The code with this word, as a store reads it back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }
}
