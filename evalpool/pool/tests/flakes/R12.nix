{
  outputs = { self }:
    let
      app = derivation { name = "app"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo app > $out" ]; };
    in {
      packages.x86_64-linux = { inherit app; default = app; alias = app; };
      checks.x86_64-linux.app = app;
      hydraJobs.app.x86_64-linux = app;
    };
}
