{
  outputs = { self }:
    let
      base = { system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo > $out" ]; };
    in {
      packages.x86_64-linux = {
        badName = derivation (base // { name = throw "name boom"; });
        illegalName = derivation (base // { name = "has space"; });
        emptyName = derivation (base // { name = ""; });
        badSystem = derivation (base // { name = "s"; system = throw "system boom"; });
        nullSystem = derivation (base // { name = "s"; system = null; });
        noBuilder = derivation { name = "n"; system = "x86_64-linux"; };
        badArg = derivation (base // { name = "a"; args = [ "-c" (throw "arg boom") ]; });
        badEnv = derivation (base // { name = "e"; EXTRA = throw "env boom"; });
        badOutputs = derivation (base // { name = "o"; outputs = [ ]; });
        dupOutputs = derivation (base // { name = "o"; outputs = [ "out" "out" ]; });
        good = derivation (base // { name = "good"; });
      };
    };
}
