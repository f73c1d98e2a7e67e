{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      long = builtins.concatStringsSep "" (builtins.genList (_: "x") 5000);
    in {
      packages.x86_64-linux = { ${long} = mk "long"; Foo = mk "upper"; foo = mk "lower"; };
    };
}
