{
  outputs = { self }:
    let
      fod = name: hash: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo payload > $out" ];
        outputHashMode = "flat"; outputHashAlgo = "sha256"; outputHash = hash; };
    in {
      packages.x86_64-linux = {
        right = fod "right" (builtins.hashString "sha256" "payload\n");
        wrong = fod "wrong" (builtins.hashString "sha256" "other\n");
        emptyHash = fod "empty-hash" "";
        badHash = fod "bad-hash" "sha256-not-base64";
      };
    };
}
