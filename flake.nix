# For people with Nix: `nix run .#demo`, `nix develop`, `nix flake check`. On Debian without Nix, see setup.sh.
{
  description = "Gradient: a Nix CI fleet whose scheduler is event sourced on NATS JetStream";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forEachSystem =
        make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});

      # Gradient opens Nix's C API with dlopen; nixpkgs spreads those libraries over several packages. One folder of
      # links to all of them is what GRADIENT_NIX_LIB_DIR wants.
      nixLibraries =
        pkgs:
        pkgs.symlinkJoin {
          name = "gradient-nix-libraries";
          paths = map pkgs.lib.getLib (
            with pkgs.nixVersions.nixComponents_2_31;
            [
              nix-util-c
              nix-store-c
              nix-expr-c
              nix-fetchers-c
              nix-flake-c
              nix-main-c
            ]
          );
        };

      # What `gradient up` starts beside its own programs.
      runtime = pkgs: [
        pkgs.nats-server
        pkgs.postgresql
        pkgs.nixVersions.nix_2_31
      ];

      gradient =
        pkgs:
        pkgs.rustPlatform.buildRustPackage {
          pname = "gradient";
          version = "0.1.0";
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [
            "-p"
            "gradient-cli"
            "-p"
            "gradient-server"
            "-p"
            "gradient-worker"
          ];
          GRADIENT_NIX_LIB_DIR = "${nixLibraries pkgs}/lib";
          nativeBuildInputs = [ pkgs.makeWrapper ];
          # The linker that it chooses is a convenience for working on Gradient; here the standard one does.
          postPatch = "rm -f .cargo/config.toml";
          # The whole suite starts brokers, databases and Nix daemons, which the build sandbox does not allow.
          doCheck = false;
          postInstall = ''
            for program in gradient gradient-server gradient-worker; do
              wrapProgram "$out/bin/$program" \
                --prefix PATH : "$out/bin:${pkgs.lib.makeBinPath (runtime pkgs)}" \
                --set-default GRADIENT_NIX_LIB_DIR "${nixLibraries pkgs}/lib"
            done
          '';
          meta = {
            description = "A Nix CI fleet whose scheduler is event sourced on NATS JetStream";
            license = with pkgs.lib.licenses; [
              mit
              asl20
            ];
            mainProgram = "gradient";
            platforms = systems;
          };
        };
    in
    {
      packages = forEachSystem (pkgs: {
        default = gradient pkgs;
      });

      apps = forEachSystem (pkgs: {
        # A local cluster that evaluates and builds examples/, as `make demo` does on Debian.
        demo = {
          type = "app";
          program = "${pkgs.writeShellScript "gradient-demo" ''
            export PATH="${gradient pkgs}/bin:${pkgs.lib.makeBinPath (runtime pkgs)}:$PATH"
            exec ${self}/e2e/demo.sh "$@"
          ''}";
          meta.description = "Start a local Gradient cluster and build the examples with it";
        };
      });

      checks = forEachSystem (pkgs: {
        package = gradient pkgs;
        formatting =
          pkgs.runCommand "gradient-formatting"
            {
              nativeBuildInputs = [
                pkgs.cargo
                pkgs.rustc
                pkgs.rustfmt
              ];
            }
            ''
              export CARGO_HOME=$TMPDIR
              cd ${self}
              cargo fmt --check
              touch "$out"
            '';
      });

      devShells = forEachSystem (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.cargo
            pkgs.rustc
            pkgs.rustfmt
            pkgs.clippy
          ]
          ++ runtime pkgs;
          GRADIENT_NIX_LIB_DIR = "${nixLibraries pkgs}/lib";
          # Set, even empty, it replaces the flags of .cargo/config.toml, which ask for a linker that is not in here.
          RUSTFLAGS = "";
        };
      });
    };
}
