{
  outputs = { self }:
    let
      mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      packages.x86_64-linux = {
        a-good = mk "a-good";
        b-throw = throw "unfree: licence not accepted";
        c-abort = abort "hard stop";
        d-assert = assert 1 == 2; mk "never";
        e-missing = { }.nope;
        f-type = 1 + "x";
        g-broken = if true then throw "marked as broken, refusing to evaluate" else mk "g";
        z-good = mk "z-good";
      };
    };
}
