{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      warn = builtins.warn or (m: v: builtins.trace "evaluation warning: ${m}" v);
    in {
      packages.x86_64-linux = {
        quiet = mk "quiet";
        traced = builtins.trace "plain trace" (mk "traced");
        warned = warn "first line\nsecond line\nthird line" (mk "warned");
        both = builtins.trace "shared" (warn "old option" (mk "both"));
      };
    };
}
