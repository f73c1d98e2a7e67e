//! Functions in the Nix language. Each is evaluated once per source and applied to many values.

/// Calls a function whose arguments all have defaults, and a set that is called like one, as
/// `nix-build` does. A derivation stays what it is, even one that can be called. Only the printed
/// form tells `{ }: x` from `any: x`.
pub(crate) const AUTO_CALL: &str = r#"
let
  named = f:
    let xml = builtins.toXML f; in
    builtins.replaceStrings [ "<attrspat" ] [ "" ] xml != xml;
  open = f:
    let
      given = builtins.functionArgs f;
      lacking = builtins.filter (name: !given.${name}) (builtins.attrNames given);
    in
    if !(named f) then f
    else if lacking == [ ] then f { }
    else throw "cannot evaluate a function that has an argument without a value ('${builtins.head lacking}')";
  call = value:
    if builtins.isFunction value then open value
    else if builtins.isAttrs value && value ? __functor && (value.type or null) != "derivation"
    then call (value.__functor value)
    else value;
in
call
"#;

/// `name` of a derivation.
pub(crate) const NAME: &str = "drv: drv.name";

/// Makes, out of the most bytes to tell, a function: the entries of `meta` that JSON can hold, as
/// JSON; `null` if there are none. Entries that do not fit are left out with a warning. One that
/// throws is an error, as it is to nix-eval-jobs.
pub(crate) const META: &str = r#"
max:
let
  fits = value:
    let kind = builtins.typeOf value; in
    if kind == "list" then builtins.all fits value
    else if kind == "set" then !(value ? outPath) && builtins.all fits (builtins.attrValues value)
    else builtins.elem kind [ "int" "bool" "string" "float" ];
  kept = meta: builtins.filter (name: fits meta.${name}) (builtins.attrNames meta);
  add = meta: told: name:
    let
      value = builtins.toJSON meta.${name};
      entry = "${builtins.toJSON name}:${value}";
      size = told.size + builtins.stringLength entry + 1;
      warning = "meta is longer than ${toString max} bytes and told without '${name}', which has "
        + toString (builtins.stringLength value);
    in
    if size > max then builtins.warn warning told
    else { inherit size; entries = told.entries ++ [ entry ]; };
in
drv:
let
  meta = if drv ? meta then drv.meta else { };
  names = kept meta;
  told = builtins.foldl' (add meta) { size = 1; entries = [ ]; } names;
in
if names == [ ] then "null" else "{${builtins.concatStringsSep "," told.entries}}"
"#;

/// Makes, out of a function, one whose result is a set as JSON.
pub(crate) const APPLY: &str = r#"
f: drv:
let result = f drv; in
if builtins.isAttrs result then builtins.toJSON result
else throw "apply needs to evaluate to an attrset, not to a ${builtins.typeOf result}"
"#;

/// What an aggregate is made of, as JSON.
pub(crate) const CONSTITUENTS: &str = r#"
drv:
if !(drv._hydraAggregate or false) then ""
else if !(drv ? constituents) then throw "derivation must have a ‘constituents’ attribute"
else
  let
    built = builtins.getContext (toString drv.constituents);
    times = path: map (_: path) (built.${path}.outputs or [ ]);
  in
  builtins.toJSON {
    constituents = builtins.concatMap times (builtins.attrNames built);
    namedConstituents =
      map builtins.unsafeDiscardStringContext (builtins.filter builtins.isString drv.constituents);
    globConstituents = if drv._hydraGlobConstituents or false then true else false;
  }
"#;
