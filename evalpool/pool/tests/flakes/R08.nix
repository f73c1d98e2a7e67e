{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      names = builtins.genList (n: "p${toString n}") 50000;
      bad = n: throw "forced ${n}";
    in {
      packages.x86_64-linux =
        builtins.listToAttrs (map (n: { name = n; value = bad n; }) names) // { p777 = mk "the-good-one"; };
    };
}
