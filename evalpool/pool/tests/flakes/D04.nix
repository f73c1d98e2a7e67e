{
  outputs = { self }: {
    packages.x86_64-linux = {
      viaBuiltin = derivation {
        name = "fetched.txt"; system = "builtin"; builder = "builtin:fetchurl";
        url = "file:///nowhere/payload.txt"; urls = [ ]; unpack = false; executable = false; preferLocalBuild = true;
        outputHashMode = "flat"; outputHashAlgo = "sha256";
        outputHash = builtins.hashString "sha256" "payload\n";
      };
      usesIt = derivation { name = "uses-it"; system = "aarch64-linux"; builder = "/bin/sh";
        args = [ "-c" "echo ${self.packages.x86_64-linux.viaBuiltin} > $out" ]; };
    };
  };
}
