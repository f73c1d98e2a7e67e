{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      packages.x86_64-linux = {
        ok = mk "ok";
        fn = { pkgs ? null }: mk "from-function";
        functorSet = { __functor = self: arg: mk "from-functor"; note = "callable"; };
        functorDrv = (mk "callable-drv") // { __functor = self: arg: self; };
      };
    };
}
