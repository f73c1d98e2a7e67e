{
  outputs = { self }:
    let
      mk = system: name: derivation { inherit name system; builder = "/bin/sh"; args = [ "-c" "echo ${name} > $out" ]; };
    in {
      packages.x86_64-linux = mk "x86_64-linux" "one-level-too-high";
      packages.aarch64-linux.app = mk "aarch64-linux" "app-arm";
      packages.riscv64-none.app = mk "riscv64-none" "app-odd";
      packages.aarch64-darwin.linuxInDarwin = mk "x86_64-linux" "wrong-folder";
      checks.app = mk "x86_64-linux" "no-system-level";
    };
}
