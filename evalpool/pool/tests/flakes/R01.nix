{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      legacyPackages.x86_64-linux = {
        top = mk "top";
        yes = { recurseForDerivations = true; inner = mk "yes-inner"; };
        no = { recurseForDerivations = false; inner = mk "no-inner"; };
        absent = { inner = mk "absent-inner"; };
        deep = { recurseForDerivations = true; a = { recurseForDerivations = true; b = mk "deep-b"; }; };
      };
    };
}
