{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      selfRef = let x = x; in x;
      runaway = n: 1 + runaway (n + 1);
    in {
      packages.x86_64-linux = {
        a-good = mk "a-good";
        b-blackhole = selfRef;
        c-overflow = mk "n${toString (runaway 0)}";
        d-json = mk (builtins.toJSON (let s = { inherit s; }; in s));
        z-good = mk "z-good";
      };
    };
}
