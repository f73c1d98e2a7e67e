{
  outputs = { self }:
    let mk = name: v: derivation { inherit name v; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in { packages.x86_64-linux = {
      good = mk "good" "x";
      parent = mk "parent" (builtins.readFile ../outside.txt);
      absolute = mk "absolute" (builtins.readFile /etc/hostname);
      home = mk "home" (import ./home.nix);
      dirlist = mk "dirlist" (builtins.toJSON (builtins.readDir /.));
    }; };
}
