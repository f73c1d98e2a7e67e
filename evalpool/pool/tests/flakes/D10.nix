{
  outputs = { self }:
    let
      mk = name: extra: derivation ({ inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo x > $out" ]; } // extra);
    in {
      packages.x86_64-linux = {
        punctuation = mk "a+b-._?=c" { };
        dotted = mk "x.drv.txt" { };
        long = mk (builtins.concatStringsSep "" (builtins.genList (_: "n") 200)) { };
        tooLong = mk (builtins.concatStringsSep "" (builtins.genList (_: "n") 220)) { };
        env = mk "env" { MULTI = "a\nb\n"; EMPTY = ""; FLAG = true; OFF = false; NUL = null; NUM = 7; LIST = [ "a" "b c" ]; QUOTE = "\"\\"; };
        dotStart = mk ".hidden" { };
      };
    };
}
