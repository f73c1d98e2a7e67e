# broken: what a fleet shows when things go wrong, and that the rest goes on regardless.
#
#   throws        fails while it is evaluated; its neighbours are evaluated all the same
#   fails         builds for a moment, then ends with exit code 1
#   needs-fails   never starts, because `fails` failed
#   good          builds
#   needs-good    builds after `good`
#
# No inputs and no nixpkgs: every builder is /bin/sh with nothing but what is built into it.
{
  description = "Gradient example: one evaluation error, one failing build, and what they leave untouched";

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

      fails = mk "fails" { } ''
        echo "fails: compiling"
        echo "fails: linking"
        echo "fails: error: this build fails on purpose" >&2
        exit 1
      '';
      good = mk "good" { } ''
        echo "good: all is well"
        echo "good" > "$out"
      '';
    in
    {
      packages.${system} = {
        inherit fails good;
        throws = throw "this attribute cannot be evaluated, on purpose";
        needs-fails = mk "needs-fails" { inherit fails; } ''
          echo "needs-fails: this line is never printed"
          echo "$fails" > "$out"
        '';
        needs-good = mk "needs-good" { inherit good; } ''
          read -r line < "$good"
          echo "needs-good: found '$line'"
          echo "after $good" > "$out"
        '';
      };
    };
}
