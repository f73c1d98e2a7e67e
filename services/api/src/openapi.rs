//! The description of the api for machines.

use axum::Json;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::{builds, evaluations, fleet, live};

#[derive(OpenApi)]
#[openapi(
    info(title = "Gradient", description = "Evaluations, builds, jobs and workers of a fleet. \
        Times are milliseconds since the Unix epoch."),
    servers((url = "/api/v1")),
    security(("token" = [])),
    modifiers(&Token),
    paths(
        evaluations::list, evaluations::submit, evaluations::show, evaluations::cancel,
        evaluations::entry_points, evaluations::builds, evaluations::messages, live::evaluation,
        builds::find, builds::show, builds::cancel,
        fleet::jobs, fleet::workers, fleet::anomalies, fleet::status,
    )
)]
struct Api;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The OpenAPI document of this build.
#[must_use]
pub fn document() -> Document {
    Api::openapi()
}

pub(crate) async fn show() -> Json<Document> {
    Json(document())
}
