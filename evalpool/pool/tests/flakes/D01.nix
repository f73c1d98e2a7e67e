{
  outputs = { self }:
    let
      lib = derivation { name = "lib"; system = "x86_64-linux"; builder = "/bin/sh"; outputs = [ "bin" "dev" "out" ];
        args = [ "-c" "echo b > $bin; echo d > $dev; echo o > $out" ]; };
      user = derivation { name = "user"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "read x < ${lib.dev}; echo $x > $out" ]; };
    in {
      packages.x86_64-linux = { inherit lib user; justDev = lib.dev; };
    };
}
