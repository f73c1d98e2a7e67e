{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      packages.x86_64-linux.app = (mk "app") // {
        recurseForDerivations = true;
        tests = { recurseForDerivations = true; unit = mk "unit"; };
        boom = throw "never force me";
      };
    };
}
