# What the packages of the benchmark are made with: a fixed point with overlays, deep merging, overriding, and a
# function that turns layers of settings into the environment of a derivation. The work is of the kinds that real
# package sets do; none of it is needed.
rec {
  rounds = 48;

  fix = f: let x = f x; in x;
  extends = overlay: f: final: let previous = f final; in previous // overlay final previous;
  composed = builtins.foldl' (f: overlay: extends overlay f);

  merge = left: right:
    left // builtins.mapAttrs
      (name: value:
        if left ? ${name} && builtins.isAttrs value && builtins.isAttrs left.${name}
        then merge left.${name} value
        else value)
      right;

  unique = builtins.foldl' (list: one: if builtins.elem one list then list else list ++ [ one ]) [ ];
  words = builtins.concatStringsSep " ";

  overridable = f: arguments:
    f arguments // {
      override = changes: overridable f (arguments // changes);
      overrideAttrs = change: overridable (all: f (all // change all)) arguments;
    };

  # One layer of settings, as a module or an overlay would add it.
  layer = name: number: {
    "layer-${toString number}".enable = number - number / 2 * 2 == 0;
    build = {
      flags."flag-${toString (number - number / 7 * 7)}" = "${name}-${toString number}";
      phases = builtins.listToAttrs (map
        (phase: {
          name = phase;
          value = { inherit number; script = "run ${phase} of ${name} in layer ${toString number}"; };
        })
        [ "unpack" "patch" "configure" "build" "check" "install" "fixup" ]);
    };
    meta = { priority = number; origin.${toString (number - number / 5 * 5)} = name; };
  };

  settings = name: builtins.foldl' merge { } (builtins.genList (layer name) rounds);

  closure = inputs: unique (builtins.concatMap (input: [ input.name ] ++ input.propagated) inputs);

  package = overridable ({ name, version, inputs, config, description }:
    let
      all = merge (settings name) config;
      script = phase:
        let one = all.build.phases.${phase}; in "${phase}() { ${one.script} ${toString one.number}; }";
      flags = builtins.mapAttrs
        (flag: value: "--with-${flag}=${builtins.substring 0 12 (builtins.hashString "sha256" value)}")
        all.build.flags;
      enabled = builtins.filter (key: all.${key}.enable or false) (builtins.attrNames all);
      propagated = builtins.genList (n: builtins.elemAt (closure inputs) n)
        (let length = builtins.length (closure inputs); in if length < 12 then length else 12);
      drv = derivation {
        name = "${name}-${version}";
        system = "x86_64-linux";
        builder = "/bin/sh";
        args = [ "-c" "echo $name > $out" ];
        inherit version;
        buildInputs = map (input: input.out) inputs;
        flags = words (builtins.attrValues flags);
        layers = words enabled;
        phases = builtins.concatStringsSep "\n" (map script (builtins.attrNames all.build.phases));
        propagated = words propagated;
      };
    in
    drv // {
      inherit version propagated;
      meta = all.meta // {
        inherit description;
        position = "${name}:${toString all.meta.priority}";
      };
    });
}
