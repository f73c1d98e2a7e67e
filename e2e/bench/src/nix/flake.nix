{
  description = "A generated set of packages, to measure evaluations with";

  outputs = { self }:
    let
      lib = import ./lib.nix // { };
      sets = import ./sets.nix;
      overlays = map (set: import (./sets + "/${set}.nix") lib) sets;
      # An overlay over all of them, as users write it: a package of each set is changed.
      changes = final: previous: builtins.mapAttrs
        (name: set:
          if builtins.isAttrs set && set ? p000
          then set // { p000 = set.p000.override { config.build.flags.changed = name; }; }
          else set)
        previous;
      all = lib.fix (lib.composed (final: { }) (overlays ++ [ changes ]));
    in
    { legacyPackages.x86_64-linux = all; };
}
