{
  outputs = { self }:
    let
      mk = name: deps: derivation { inherit name deps; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
      chain = n: if n == 0 then mk "link-0" [ ] else mk "link-${toString n}" [ (chain (n - 1)) ];
      leafs = builtins.genList (n: mk "leaf-${toString n}" [ ]) 300;
      root = mk "root" [ ];
      left = mk "left" [ root ];
      right = mk "right" [ root ];
    in {
      packages.x86_64-linux = { diamond = mk "diamond" [ left right ]; chain = chain 400; fanIn = mk "fan-in" leafs; };
    };
}
