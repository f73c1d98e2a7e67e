//! One line of the output. Names and meanings are those of nix-eval-jobs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use gradient_domain::derivation::Outline;
use gradient_domain::{AttrPath, Derivation, StorePath};
use gradient_pool::Extra;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One result. Whatever was not asked for, or is not known of an attribute that failed, is absent.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    pub(super) attr: String,
    attr_path: AttrPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drv_path: Option<StorePath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<BTreeMap<String, Option<StorePath>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_drvs: Option<BTreeMap<StorePath, BTreeSet<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    required_system_features: Option<BTreeSet<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_value: Option<Box<RawValue>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) cache: Option<CacheStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) constituents: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) named_constituents: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) glob_constituents: Option<bool>,
}

/// Whether there is anything to do for the outputs of a derivation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CacheStatus {
    pub(super) is_cached: bool,
    pub(super) cache_status: Availability,
    /// Dependencies first.
    pub(super) needed_builds: Vec<StorePath>,
    /// By name.
    pub(super) needed_substitutes: Vec<StorePath>,
}

/// Where the outputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Availability {
    /// Here.
    Local,
    /// Here or in a binary cache.
    Cached,
    /// Something has to be built.
    NotBuilt,
}

/// What the evaluator tells of an aggregate.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Constituents {
    constituents: Vec<String>,
    named_constituents: Vec<String>,
    glob_constituents: bool,
}

/// What is told beside the necessary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) input_drvs: bool,
    pub(super) constituents: bool,
    /// Not if the derivation only exists for this run.
    pub(super) features: bool,
}

impl Line {
    /// The line of an attribute that failed.
    pub(super) fn failed(path: AttrPath, error: String) -> Line {
        Line { attr: joined(&path), attr_path: path, error: Some(error), ..Line::default() }
    }

    /// The line of a derivation, whose file has to be there if its inputs are wanted.
    pub(super) fn of(
        path: AttrPath,
        drv_path: StorePath,
        (outline, derivation): (Outline, Option<Derivation>),
        extra: Extra,
        wanted: Wanted,
    ) -> anyhow::Result<Line> {
        let raw = |json: Option<String>| json.map(RawValue::from_string).transpose();
        let plain_name = || plain_name(&drv_path).to_owned();
        let mut line = Line {
            name: Some(extra.name.unwrap_or_else(plain_name)),
            required_system_features: wanted.features.then_some(outline.required_system_features),
            system: Some(outline.system.0),
            outputs: Some(outline.outputs),
            input_drvs: derivation.map(|read| read.input_drvs).filter(|_| wanted.input_drvs),
            meta: raw(extra.meta).context("meta is not JSON")?,
            extra_value: raw(extra.applied).context("the result of --apply is not JSON")?,
            drv_path: Some(drv_path),
            attr: joined(&path),
            attr_path: path,
            ..Line::default()
        };
        if wanted.constituents {
            let told = match extra.constituents {
                Some(json) => serde_json::from_str(&json).context("constituents are not JSON")?,
                None => Constituents::default(),
            };
            line.constituents = Some(told.constituents);
            line.named_constituents = Some(told.named_constituents);
            line.glob_constituents = Some(told.glob_constituents);
        }
        Ok(line)
    }

    /// Whether this is an aggregate whose jobs are yet to be found by their names.
    pub(super) fn waits_for_others(&self) -> bool {
        self.named_constituents.as_ref().is_some_and(|names| !names.is_empty())
    }

    /// The line's text.
    pub(super) fn to_json(&self) -> anyhow::Result<String> {
        serde_json::to_string(self).context("a result is no JSON")
    }
}

/// The name of a derivation, by its file.
pub(super) fn plain_name(drv_path: &StorePath) -> &str {
    let name = drv_path.name();
    name.strip_suffix(".drv").unwrap_or(name)
}

/// The names joined by dots. As nix-eval-jobs does it, a name with dots stands in quotes and nothing
/// else is escaped; an empty one does, too. `attrPath` is the form for programs.
pub(super) fn joined(path: &AttrPath) -> String {
    let names = path.0.iter().map(|name| match name.is_empty() || name.contains('.') {
        true => format!("\"{name}\""),
        false => name.clone(),
    });
    names.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRV: &str = "Derive([(\"out\",\"\",\"r:sha256\",\"\")],\
        [(\"/nix/store/0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-b.drv\",[\"dev\",\"out\"])],[],\
        \"x86_64-linux\",\"/bin/sh\",[],[(\"requiredSystemFeatures\",\"kvm  kvm\")])";

    fn line(extra: Extra, wanted: Wanted) -> String {
        let path = ["a", "b.c"].into_iter().collect();
        let drv_path = "/nix/store/0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-n-1.drv".parse().expect("path");
        let derivation = Derivation::parse(DRV.as_bytes()).expect("parses");
        let told = (Outline::from(&derivation), Some(derivation));
        Line::of(path, drv_path, told, extra, wanted).expect("line").to_json().expect("json")
    }

    #[test]
    fn only_what_is_asked_for_is_told() {
        let head = "{\"attr\":\"a.\\\"b.c\\\"\",\"attrPath\":[\"a\",\"b.c\"]";
        let drv = "\"system\":\"x86_64-linux\",\
            \"drvPath\":\"/nix/store/0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-n-1.drv\",\
            \"outputs\":{\"out\":null}";
        assert_eq!(
            line(Extra::default(), Wanted::default()),
            format!("{head},\"name\":\"n-1\",{drv}}}")
        );
        let extra = Extra {
            name: Some("other".into()),
            meta: Some("null".into()),
            applied: Some("{\"x\":1.50}".into()),
            constituents: None,
            outline: None,
        };
        let wanted = Wanted { input_drvs: true, constituents: true, features: true };
        assert_eq!(
            line(extra, wanted),
            format!(
                "{head},\"name\":\"other\",{drv},\"inputDrvs\":\
                 {{\"/nix/store/0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-b.drv\":[\"dev\",\"out\"]}},\
                 \"requiredSystemFeatures\":[\"kvm\"],\"meta\":null,\"extraValue\":{{\"x\":1.50}},\
                 \"constituents\":[],\"namedConstituents\":[],\"globConstituents\":false}}"
            )
        );
    }

    #[test]
    fn an_error_is_a_line_of_its_own_whatever_it_holds() {
        let path = ["line\nbreak", "", "sp ace", "star*"].into_iter().collect();
        let text = Line::failed(path, "one\ntwo\u{1b}".into()).to_json().expect("json");
        assert_eq!(
            text,
            "{\"attr\":\"line\\nbreak.\\\"\\\".sp ace.star*\",\
             \"attrPath\":[\"line\\nbreak\",\"\",\"sp ace\",\"star*\"],\
             \"error\":\"one\\ntwo\\u001b\"}"
        );
    }
}
