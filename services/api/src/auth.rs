//! The bearer token.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::error::ApiError;
use crate::server::ApiState;

/// Lets a request through if it has the token; the comparison takes as long for a wrong one.
pub(crate) async fn require(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let is_right = given.is_some_and(|given| bool::from(given.ct_eq(state.token())));
    if is_right {
        return next.run(request).await;
    }
    let hint = "send the header 'Authorization: Bearer <token>'";
    let error = if given.is_some() { "the token is wrong" } else { "a token is required" };
    let mut response = ApiError::new(StatusCode::UNAUTHORIZED, error, hint).into_response();
    let scheme = header::HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}
