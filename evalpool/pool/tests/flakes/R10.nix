{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      nest = n: if n == 0 then { recurseForDerivations = true; leaf = mk "leaf"; } else { recurseForDerivations = true; d = nest (n - 1); };
    in {
      legacyPackages.x86_64-linux = { top = mk "top"; deep = nest 300; };
    };
}
