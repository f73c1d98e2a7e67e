{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      real = mk "real";
    in {
      packages.x86_64-linux = {
        inherit real;
        onlyOutPath = { outPath = "${real}"; };
        toStringSet = { __toString = self: "${real}"; };
        fakeType = { type = "derivation"; name = "fake"; };
        drvPathIsOut = { type = "derivation"; name = "mixed"; drvPath = real.outPath; outPath = real.outPath; };
        drvPathIsText = { type = "derivation"; name = "text"; drvPath = "not-a-path"; outPath = "x"; };
        justString = "${real}";
      };
    };
}
