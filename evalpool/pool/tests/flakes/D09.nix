{
  outputs = { self }:
    let
      conf = builtins.toFile "settings.conf" "level=3\n";
      src = builtins.path { path = ./data; name = "data"; };
      mid = derivation { name = "mid"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "read x < ${conf}; echo $x > $out" ]; };
    in {
      packages.x86_64-linux.app = derivation { name = "app"; system = "x86_64-linux"; builder = "/bin/sh"; inherit mid;
        args = [ "-c" "read a < ${src}/a; read m < $mid; echo $a $m > $out" ]; };
    };
}
