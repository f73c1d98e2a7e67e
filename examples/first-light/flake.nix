# first-light: everything here builds. It shows what a small project asks of a fleet: jobs that may run side by side, jobs
# that wait for others, several outputs, a job that only some machines may take, and one whose log can be watched.
#
#   diamond    base -> left, right -> top
#   chain      step-1 -> step-2 -> step-3 -> step-4
#   outputs    toolkit has `out` and `dev`; uses-dev needs `dev` alone
#   feature    heavy needs a builder with the system feature big-parallel
#   live log   slow-lines prints a line a second
#   default    refers to all of them
#
# No inputs and no nixpkgs: every builder is /bin/sh with nothing but what is built into it, so nothing is downloaded.
# Whatever a builder writes of another's store path into its output becomes a reference between the two.
{
  description = "Gradient example: a dozen small derivations that all build";

  outputs =
    { self }:
    let
      system = "x86_64-linux";

      # mk NAME DEPENDENCIES SCRIPT: the dependencies are the script's environment variables.
      mk =
        name: dependencies: script:
        derivation (
          {
            inherit name system;
            builder = "/bin/sh";
            args = [
              "-euc"
              script
            ];
          }
          // dependencies
        );

      base = mk "base" { } ''
        echo "base: laying the ground"
        echo "ground" > "$out"
      '';
      left = mk "left" { inherit base; } ''
        echo "left: building on $base"
        echo "left of $base" > "$out"
      '';
      right = mk "right" { inherit base; } ''
        echo "right: building on $base"
        echo "right of $base" > "$out"
      '';
      top = mk "top" { inherit left right; } ''
        read -r l < "$left"
        read -r r < "$right"
        echo "top: found '$l' and '$r'"
        printf '%s\n' "$left" "$right" > "$out"
      '';

      # The number of the step is all that differs, and the first has nothing before it.
      step =
        number: before:
        mk "step-${toString number}" { inherit before; } ''
          echo "step ${toString number}: after ''${before:-nothing}"
          echo "step ${toString number} after $before" > "$out"
        '';
      step-1 = step 1 "";
      step-2 = step 2 step-1;
      step-3 = step 3 step-2;
      step-4 = step 4 step-3;

      toolkit =
        mk "toolkit"
          {
            outputs = [
              "out"
              "dev"
            ];
          }
          ''
            echo "toolkit: one build, two outputs"
            echo "the tool itself" > "$out"
            echo "what others need to build with it" > "$dev"
          '';
      # Only `dev` becomes a reference: `out` need not be on the machine that builds or uses this.
      uses-dev = mk "uses-dev" { inherit (toolkit) dev; } ''
        read -r line < "$dev"
        echo "uses-dev: $line"
        echo "built with $dev" > "$out"
      '';

      heavy = mk "heavy" { requiredSystemFeatures = [ "big-parallel" ]; } ''
        echo "heavy: this builder has the feature big-parallel"
        echo "heavy" > "$out"
      '';

      # /dev/ptmx never has anything to read: waiting for it with a time limit is a sleep that needs no program.
      slow-lines = mk "slow-lines" { inherit base; } ''
        for second in 1 2 3 4 5; do
          echo "slow-lines: line $second of 5"
          read -r -t 1 nothing <> /dev/ptmx || :
        done
        echo "slow-lines: done"
        echo "took its time after $base" > "$out"
      '';

      jobs = {
        inherit
          base
          left
          right
          top
          step-1
          step-2
          step-3
          step-4
          toolkit
          uses-dev
          heavy
          slow-lines
          ;
      };
    in
    {
      packages.${system} = jobs // {
        default = mk "first-light" { all = builtins.attrValues jobs; } ''
          printf '%s\n' $all > "$out"
        '';
      };
    };
}
