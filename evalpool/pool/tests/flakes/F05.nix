{
  outputs = { self }:
    let mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in { packages.x86_64-linux = {
      good = mk "good";
      time = mk "t${toString builtins.currentTime}";
      sys = mk "s-${builtins.currentSystem}";
      env = mk "e-${builtins.getEnv "HOME"}-";
      modified = mk "m${toString (self.lastModified or 0)}";
      rev = mk "r-${self.rev or self.dirtyRev or "none"}";
    }; };
}
