{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      checks.x86_64-linux = {
        good = mk "good-check";
        int = 42;
        str = "hello";
        nul = null;
        path = ./flake.nix;
        list = [ (mk "in-list") ];
        set = { inner = mk "in-set"; };
        empty = { };
        fn = x: x;
      };
    };
}
