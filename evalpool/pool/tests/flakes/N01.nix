{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      packages.x86_64-linux = {
        "tool-1.2" = mk "tool-dotted";
        plain = mk "plain";
      };
    };
}
