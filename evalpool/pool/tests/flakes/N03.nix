{
  outputs = { self }:
    let
      mk = n: derivation { name = "job-${toString n}"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${toString n} > $out" ]; };
    in {
      packages.x86_64-linux = {
        "with space" = mk 1;
        "quo\"te" = mk 2;
        "back\\slash" = mk 3;
        "dollar\${x}" = mk 4;
        "sub/dir/../up" = mk 5;
        "star*" = mk 6;
        "hash#tag" = mk 7;
        "caret^out" = mk 8;
        "-leading-dash" = mk 9;
        "line\nbreak" = mk 10;
        "user@host:22" = mk 11;
        "or" = mk 12;
        "1st" = mk 13;
      };
    };
}
